package replay

import (
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const twoSessions = `{"block_size":64,"requests":[{"t":0,"in":150,"out":5,"base":-1,"keep":0,"new":[7,3,9]},{"t":100,"in":200,"out":6,"base":1,"keep":2,"new":[8,4]}]}
{"block_size":64,"requests":[{"t":2,"in":64,"out":1,"base":-1,"keep":0,"new":[7]}]}
`

func TestSessions(t *testing.T) {
	trace, err := parse("two", strings.NewReader(twoSessions), Load{Pause: 10, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	// Each session's blocks are its own, numbered as they come.
	var first []Request
	for _, q := range trace.Requests {
		if q.Session == 0 {
			first = append(first, q)
		}
	}
	if trace.BlockSize != 64 || trace.Blocks != 6 || len(trace.Requests) < 2 {
		t.Fatalf("%+v", trace)
	}
	for _, q := range first {
		want := []int32{0, 1, 2}
		if q.In == 200 {
			want = []int32{0, 1, 3, 4}
		}
		if !slices.Equal(q.Blocks, want) {
			t.Errorf("blocks %v, want %v", q.Blocks, want)
		}
	}
	if len(first) == 2 && math.Abs(first[1].At-first[0].At-10) > 1e-9 {
		t.Errorf("the pause lasts %v s", first[1].At-first[0].At)
	}
}

func TestCalls(t *testing.T) {
	const lines = `{"timestamp":4000,"input_length":600,"output_length":7,"hash_ids":[5,9]}

{"timestamp":1000,"input_length":512,"output_length":3,"hash_ids":[5]}`
	trace, err := parse("calls", strings.NewReader(lines), Load{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Trace{Name: "calls", BlockSize: 512, Blocks: 2, Requests: []Request{
		{At: 0, Session: 0, In: 512, Out: 3, Blocks: []int32{0}},
		{At: 3, Session: 1, In: 600, Out: 7, Blocks: []int32{0, 1}},
	}}
	if !reflect.DeepEqual(trace, want) {
		t.Errorf("%+v", trace)
	}
	// Twice as dense: two requests in half a second.
	if trace, err = parse("calls", strings.NewReader(lines), Load{Rate: 4}); err != nil || trace.Requests[1].At != 0.5 {
		t.Errorf("%+v, %v", trace, err)
	}
}

// TestRate: requests come at the rate asked for, from the beginning on to the end.
func TestRate(t *testing.T) {
	for _, rate := range []float64{0.2, 0.5, 1} {
		trace := generatedTrace(t, Load{Rate: rate, Seed: 1})
		if got := float64(len(trace.Requests)) / trace.Seconds(); math.Abs(got/rate-1) > 0.1 {
			t.Errorf("%v requests a second, want %v", got, rate)
		}
		middle := trace.Seconds() / 2
		before := slices.IndexFunc(trace.Requests, func(q Request) bool { return q.At > middle })
		if share := float64(before) / float64(len(trace.Requests)); share < 0.4 || share > 0.6 {
			t.Errorf("at a rate of %v, %v of the requests come in the first half", rate, share)
		}
	}
	if _, err := Generate(Load{Rate: 1000, Sessions: 5}); err == nil || !strings.Contains(err.Error(), "5 sessions give at most") {
		t.Error(err)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	const good = `{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[5]}` + "\n"
	for lines, want := range map[string]string{
		"":                 "no requests",
		good:               "fewer than two requests",
		good + "\n{":       "line 3: unexpected end of JSON input",
		good + "[]":        "line 2: json: cannot unmarshal array",
		good + `{"a":1}`:   "line 2: neither a session (block_size, requests) nor a request (timestamp,",
		good + twoSessions: "line 2: neither a session",
		`{"timestamp":1,"input_length":0,"output_length":1,"hash_ids":[5]}`:                                    "line 1: 0 tokens in, 1 out",
		`{"timestamp":1,"input_length":1,"output_length":-1,"hash_ids":[5]}`:                                   "line 1: 1 tokens in, -1 out",
		`{"block_size":0,"requests":[{"in":1,"base":-1,"new":[1]}]}`:                                           "line 1: block_size 0",
		`{"block_size":64,"requests":[{"in":1,"base":-1,"new":[]}]}`:                                           "line 1: request 1 has 0 blocks",
		`{"block_size":64,"requests":[{"in":1,"base":0,"keep":0,"new":[1]}]}`:                                  "line 1: request 1 keeps 0 blocks of one that does not have them",
		`{"block_size":64,"requests":[{"in":1,"base":1,"keep":0,"new":[1]}]}`:                                  "line 1: request 1 keeps 0 blocks",
		`{"block_size":64,"requests":[{"in":1,"base":-1,"new":[1]},{"in":1,"base":1,"keep":2}]}`:               "line 1: request 2 keeps 2 blocks",
		`{"block_size":64,"requests":[{"t":2,"in":1,"base":-1,"new":[1]},{"t":1,"in":1,"base":-1,"new":[1]}]}`: "line 1: request 2 goes back in time",
		twoSessions + `{"block_size":16,"requests":[{"in":1,"base":-1,"new":[1]}]}`:                            "line 3: block_size 16, but 64 before",
	} {
		if _, err := parse("x", strings.NewReader(lines), Load{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", lines, err, want)
		}
	}
	if _, err := Read("/there/is/none", Load{}); err == nil {
		t.Error("read what is not there")
	}
	path := filepath.Join(t.TempDir(), "a.gz")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, Load{}); err == nil || !strings.HasPrefix(err.Error(), path+": gzip") {
		t.Error(err)
	}
}

func TestGzip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(twoSessions)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	trace, err := Read(path, Load{Seed: 3})
	if err != nil || trace.Name != path || trace.Blocks != 6 {
		t.Errorf("%+v, %v", trace, err)
	}
}

// FuzzParse: whatever a file has, it is refused or makes a trace that can be replayed.
func FuzzParse(f *testing.F) {
	f.Add(twoSessions, 0.0, 0.0)
	f.Add(`{"timestamp":1,"input_length":9,"output_length":1,"hash_ids":[5,6]}`+"\n"+`{"timestamp":5,"input_length":9,"output_length":1,"hash_ids":[5]}`, 1.0, 5.0)
	f.Fuzz(func(t *testing.T, lines string, rate, pause float64) {
		if !(rate >= 0 && rate <= 1e6 && pause >= 0) {
			return
		}
		trace, err := parse("x", strings.NewReader(lines), Load{Rate: rate, Pause: pause})
		if err != nil {
			return
		}
		at := math.Inf(-1)
		for _, q := range trace.Requests {
			if !(q.At >= at) || math.IsInf(q.At, 0) || q.In < 1 || q.Out < 0 || len(q.Blocks) == 0 {
				t.Fatalf("%+v behind %v", q, at)
			}
			at = q.At
			for _, b := range q.Blocks {
				if b < 0 || int(b) >= trace.Blocks {
					t.Fatalf("block %d of %d", b, trace.Blocks)
				}
			}
		}
		o := Defaults
		o.Fleet.Workers = 2
		replayed(t, trace, "exact", o)
	})
}
