package usage

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// The attributes that are picked out of a line are those of the record that the line says.
func FuzzEvent(f *testing.F) {
	f.Add("a/usage", "door/main", uint64(7), "a", "research", int64(1_700_000_000), int64(0))
	f.Add("a\"\\\n\x00\xff/usage", "door/ü", uint64(1<<64-1), "\u2028", "", int64(-1), int64(1))
	f.Fuzz(func(t *testing.T, id, source string, sequence uint64, admission, team string, admitted, ended int64) {
		r := &usagev1.Record{Id: id, Kind: KindUsage, Source: source, Sequence: sequence, Admission: admission, Team: team}
		if admitted != 0 {
			r.AdmittedAt = &timestamppb.Timestamp{Seconds: admitted}
		}
		if ended != 0 {
			r.EndedAt = &timestamppb.Timestamp{Seconds: ended}
		}
		r.Anomalies = []string{`","team":"other"`, id}
		line := appendLine(nil, r)
		line = line[:len(line)-1]
		c := newChunk(0)
		c.begin("x.log", 100)
		err := c.add(5, line)
		said, parseErr := ParseJSON(line[sumLen:])
		if parseErr != nil {
			t.Fatal(parseErr)
		}
		if said.Id == "" || said.Source == "" {
			if err == nil {
				t.Fatal("a record without id or source was taken")
			}
			return
		}
		if err != nil || len(c.events) != 1 {
			t.Fatalf("%v, %d events", err, len(c.events))
		}
		e := c.events[0]
		got := map[string]string{}
		for _, h := range e.headers {
			got[h.Key] = string(h.Value)
		}
		want := map[string]string{
			"content-type": "application/json", "ce_specversion": "1.0", "ce_type": "spokegate.usage.v1", "ce_dataschema": DataSchema,
			"ce_id": said.Id, "ce_source": said.Source, "ce_sequence": fmt.Sprintf("%020d", said.Sequence),
		}
		for key, value := range map[string]string{"ce_subject": said.Admission, "ce_partitionkey": said.Team} {
			if value != "" {
				want[key] = value
			}
		}
		for _, at := range []*timestamppb.Timestamp{said.AdmittedAt, said.EndedAt} {
			if at != nil {
				want["ce_time"] = at.AsTime().Format("2006-01-02T15:04:05.999999999Z07:00")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || string(e.key) != said.Team || e.key == nil || e.offset != 105 {
			t.Fatalf("%v\n%v\n%+v", got, want, e)
		}
		if !bytes.Equal(e.value, AppendJSON(nil, said)) || !bytes.Equal(e.line, line) {
			t.Fatalf("%s", e.value)
		}
	})
}

// What stands in a segment is taken or spoilt, and never stops the reader.
func FuzzLines(f *testing.F) {
	f.Add([]byte("00000000 {}\n\nx\n"))
	f.Add(appendLine(nil, &usagev1.Record{Id: "a/usage", Kind: KindUsage, Source: "door/main", Sequence: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := bytes.LastIndexByte(b, '\n') + 1
		c := newChunk(0)
		c.begin("x.log", 0)
		c.lines(b[:whole])
		if n := bytes.Count(b[:whole], []byte("\n")); len(c.events)+len(c.spoilt) != n {
			t.Fatalf("%d lines, %d events, %d spoilt", n, len(c.events), len(c.spoilt))
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	r, c := typical(), newChunk(0)
	r.Source, r.Sequence = "door/main", 12345
	line := appendLine(nil, r)
	b.ReportAllocs()
	for b.Loop() {
		c.begin("x.log", 0)
		c.lines(line)
	}
	if len(c.events) != 1 {
		b.Fatal(c.spoilt)
	}
}
