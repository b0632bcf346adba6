package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print is for people: a line for what is well in each area, and all else with its reason and its remedy.
func (r Report) Print(out io.Writer) error {
	var b strings.Builder
	count := map[Severity]int{}
	for _, area := range areas {
		well, places := 0, map[string]bool{}
		for _, f := range r.Findings {
			if f.Area == area && f.Severity == OK {
				well++
				places[f.Where] = true
			}
		}
		if well > 0 {
			fmt.Fprintf(&b, "%-12s %-13s %s\n", "ok", area, fine(well, len(places)))
		}
		for _, f := range r.Findings {
			if f.Area != area {
				continue
			}
			if count[f.Severity]++; f.Severity == OK {
				continue
			}
			fmt.Fprintf(&b, "%-12s %-13s %s: %s: %s\n", f.Severity, area, f.ID, f.Where, f.Saw)
			fmt.Fprintf(&b, "%26s %s\n%26s %s\n", "", f.Wrong, "mend:", f.Mend)
		}
	}
	fmt.Fprintf(&b, "fine: %d, notes: %d, not looked at: %d, warnings: %d, faults: %d\n",
		count[OK], count[Note], count[CannotTell], count[Warning], count[Fault])
	_, err := io.WriteString(out, b.String())
	return err
}

func fine(n, places int) string {
	if n == 1 {
		return "1 thing is as it should be"
	}
	if places == 1 {
		return fmt.Sprintf("%d things are as they should be", n)
	}
	return fmt.Sprintf("%d things are as they should be, in %d places", n, places)
}
