package enginemetrics

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestRead(t *testing.T) {
	for text, want := range map[string][]Sample{
		"a 1":                               {{nil, 1}},
		"\t a\t1.5e3 1700000000000 \r\nb 2": {{nil, 1500}},
		"a{} 1\na{x=\"y\",} 2\na { x = \"\" , z=\"}\" } 3": {{nil, 1}, {[]Label{{"x", "y"}}, 2}, {[]Label{{"x", ""}, {"z", "}"}}, 3}},
		`a{x="1\"2\\3\n4"} -0.5`:                           {{[]Label{{"x", "1\"2\\3\n4"}}, -0.5}},
		"aa 1\n#a 2\n# a 3\nna 4\n\na_total 5":             nil,
		"b{x=\"broken\nb broken":                           nil,
		"":                                                 nil,
		"[{\"a\": 1}]\n<a 2>":                              nil,
		"a +Inf":                                           {{nil, math.Inf(1)}},
		"a 1e999":                                          {{nil, math.Inf(1)}},
		strings.Repeat("b", 3*maxLine) + " 1\na 2": {{nil, 2}},
	} {
		page, err := Read(iotest.OneByteReader(strings.NewReader(text)), Names{"a": true})
		if err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
		if diff := cmp.Diff(want, page["a"]); diff != "" {
			t.Errorf("%.80q: %s", text, diff)
		}
	}
}

func TestUnreadable(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		page io.Reader
		want string
	}{
		"no value":         {strings.NewReader("a"), "a: its value is not a number"},
		"no number":        {strings.NewReader("a one"), "a: its value is not a number"},
		"too much":         {strings.NewReader("a 1 2 3"), "a: its value is not a number"},
		"no end of labels": {strings.NewReader(`a{x="1" 2`), "a: its labels cannot be read"},
		"no quotes":        {strings.NewReader(`a{x=1} 2`), "a: its labels cannot be read"},
		"no end of quotes": {strings.NewReader(`a{x="1} 2`), "a: its labels cannot be read"},
		"no such escape":   {strings.NewReader(`a{x="\t"} 2`), "a: its labels cannot be read"},
		"long":             {strings.NewReader("b 1\na{x=\"" + strings.Repeat("y", maxLine) + "\"} 1"), "a: a line of more than 65536 bytes"},
		"too large":        {io.MultiReader(strings.NewReader("a 1\n"), strings.NewReader(strings.Repeat("#", MaxPage))), "metrics of more than 8388608 bytes"},
		"broken off":       {io.MultiReader(strings.NewReader("a 1\n"), iotest.ErrReader(broken)), "broken"},
	} {
		if _, err := Read(c.page, Names{"a": true}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	whole := io.MultiReader(strings.NewReader("a 1\n"), strings.NewReader(strings.Repeat("#", MaxPage-4)))
	if page, err := Read(whole, Names{"a": true}); err != nil || len(page["a"]) != 1 {
		t.Errorf("a page of the largest size: %v, %v", page, err)
	}
}

// samples is what Prometheus' own parser finds on a page, of gauges, counters and untyped ones.
func samples(page []byte) (Page, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, err
	}
	out := Page{}
	for name, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM || f.GetType() == dto.MetricType_SUMMARY {
			continue
		}
		for _, m := range f.Metric {
			s := Sample{Value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()}
			for _, l := range m.Label {
				s.Labels = append(s.Labels, Label{l.GetName(), l.GetValue()})
			}
			out[name] = append(out[name], s)
		}
	}
	return out, nil
}

// FuzzRead holds it against Prometheus' own parser: what that one takes, we read the same.
func FuzzRead(f *testing.F) {
	page, err := os.ReadFile("testdata/vllm-metrics.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page)
	f.Add([]byte("# TYPE a counter\na{x=\"\\\"\\n\\\\\", y=\"}\",} 1.5e3 12\na 2\n"))
	f.Add([]byte("a{} NaN\r\n \ta_b:c1\t0x1p3\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		theirs, err := samples(page)
		if err != nil {
			_, _ = Read(bytes.NewReader(page), Names{"a": true})
			return
		}
		names := Names{}
		for name := range theirs {
			if string(nameOf([]byte(name))) == name { // not a quoted one
				names[name] = true
			} else {
				delete(theirs, name)
			}
		}
		ours, err := Read(bytes.NewReader(page), names)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(theirs, ours, cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	page, err := os.ReadFile("testdata/vllm-metrics.txt")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(page), Known); err != nil {
			b.Fatal(err)
		}
	}
}
