package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

// figure is one line of bench.json. Against and Ratio are absent where there is nothing to compare with.
type figure struct {
	Name    string   `json:"name"`
	Value   float64  `json:"value"`
	Unit    string   `json:"unit"`
	Against *float64 `json:"against"` // the baseline's value: plain Envoy, or what the name's note in the table says
	Ratio   *float64 `json:"ratio"`   // median over the rounds of value/against within the round

	low, high float64 // of the ratio
	note      string
}

// compared makes a figure of pairs measured in the same rounds.
func compared(name, unit, note string, ours, baseline []float64) figure {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / baseline[i]
	}
	against, ratio := median(baseline), median(ratios)
	f := figure{Name: name, Value: median(ours), Unit: unit, Against: &against, Ratio: &ratio, note: note}
	f.low, f.high = slices.Min(ratios), slices.Max(ratios)
	return f
}

func alone(name, unit, note string, ours []float64) figure {
	return figure{Name: name, Value: median(ours), Unit: unit, note: note}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func writeFigures(path string, figures []figure) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(figures, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func printTable(w io.Writer, figures []figure) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tvalue\tunit\tagainst\tratio\tlowest–highest\tagainst what")
	for _, f := range figures {
		against, ratio, spread := "", "", ""
		if f.Against != nil {
			against, ratio, spread = short(*f.Against), short(*f.Ratio), short(f.low)+"–"+short(f.high)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, short(f.Value), f.Unit, against, ratio, spread, f.note)
	}
	t.Flush()
}

// short has three significant digits, and all digits before the point.
func short(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
