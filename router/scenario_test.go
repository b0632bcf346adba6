package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// TestScenarios tells in testdata how choices come about:
//
//	routing                        {"OverlapWeight":1}: settings, by their names in policy.Routing; a block is 8 bytes, so 2 tokens
//	workers                        one a line: ADDR ranks=2 role=decode blocks=30 tokens=4
//	announce w=ADDR rank= tier= n= from=   the blocks of text "p" from a number on, n of them, as held in a tier
//	drop w=ADDR tier= n=           the first n of them are no longer
//	report w=ADDR rank= running= waiting= used=
//	pick as=NAME n= text= known session= sheddable split onerank only=   how it was chosen, and what came of it
//	would …                        the same without booking
//	first as=NAME; serving as=NAME w=ADDR; release as=NAME
//	wait for=3s
//	loads
//
// Each thing that happens ends with nothing said, or with the loads.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{pool: newPool(t, Config{}), books: map[string]*Booking{}, feeds: map[name]*Feed{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	*pool
	books map[string]*Booking
	feeds map[name]*Feed
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	arg := args{d}
	as := arg.text("as", "")
	switch d.Cmd {
	case "routing":
		how := policy.Routing{BlockBytes: 8, Tiers: policy.DefaultTiers, Split: policy.DefaultSplit}
		if err := json.Unmarshal([]byte(d.Input), &how); err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.SetRouting(how)
	case "workers":
		s.workers(t, d)
	case "announce", "drop":
		s.announce(d.Cmd, arg)
	case "report":
		s.Reported(arg.text("w", ""), arg.number("rank", 0), Report{
			At: s.now, Running: arg.number("running", 0), Waiting: arg.number("waiting", 0), CacheUsed: float64(arg.number("used", 0)) / 100,
		})
	case "pick", "would":
		return s.choice(d, as, arg)
	case "first":
		s.books[as].FirstByte()
	case "serving":
		s.books[as].Serving(arg.text("w", ""))
	case "release":
		s.books[as].Release()
	case "wait":
		for_, err := time.ParseDuration(arg.text("for", ""))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(for_)
		return ""
	case "loads":
		return s.told()
	default:
		d.Fatalf(t, "unknown command")
	}
	return ""
}

func (s *scenario) workers(t *testing.T, d *datadriven.TestData) {
	var ws []Worker
	for line := range strings.Lines(d.Input) {
		w := Worker{Addr: strings.Fields(line)[0]}
		for _, f := range strings.Fields(line)[1:] {
			key, value, _ := strings.Cut(f, "=")
			var err error
			switch key {
			case "ranks":
				_, err = fmt.Sscan(value, &w.Ranks)
			case "blocks":
				_, err = fmt.Sscan(value, &w.Blocks)
			case "tokens":
				_, err = fmt.Sscan(value, &w.BlockTokens)
			case "role":
				w.Role = value
			default:
				err = errors.New("unknown")
			}
			if err != nil {
				d.Fatalf(t, "%s: %v", f, err)
			}
		}
		ws = append(ws, w)
	}
	s.SetWorkers(ws)
}

var tierNames = map[string]blocktree.Tier{
	"device": blocktree.Device, "host": blocktree.Host, "disk": blocktree.Disk, "shared": blocktree.Shared, "nowhere": blocktree.Nowhere,
}

func (s *scenario) announce(cmd string, arg args) {
	of, tier := name{arg.text("w", ""), arg.number("rank", 0)}, tierNames[arg.text("tier", "device")]
	f := s.feeds[of]
	if f == nil {
		f = s.Announced(of.addr, of.rank, 1)
		s.feeds[of] = f
	}
	var blocks []blocktree.Block
	for i := arg.number("from", 0); i < arg.number("n", 0); i++ {
		if cmd == "drop" {
			f.Removed(tier, uint32(i+1))
			continue
		}
		b := []byte(text(i+1, "p"))[8*i:]
		blocks = append(blocks, blocktree.Block{Key: uint32(i + 1), Parent: uint32(i), Length: 8, Hash: xxh3.HashSeed(b, 1), Tier: tier})
	}
	if lost := f.Stored(blocks); lost > 0 {
		s.t.Fatalf("%d blocks lost", lost)
	}
}

func (s *scenario) choice(d *datadriven.TestData, as string, arg args) string {
	ask := Ask{Prompt: []byte(text(arg.number("n", 0), arg.text("text", "p"))), Session: uint64(arg.number("session", 0)),
		Sheddable: d.HasArg("sheddable"), Split: d.HasArg("split"), OneRank: d.HasArg("onerank")}
	if d.HasArg("known") {
		ask.Text = ask.Prompt
	}
	if only := arg.text("only", ""); only != "" {
		ask.Subset = []string{only}
	}
	pick := s.Pick
	if d.Cmd == "would" {
		pick = s.Would
	}
	c, err := pick(s.now, ask)
	if err != nil {
		return err.Error()
	}
	s.books[as] = c.Booking
	out := fmt.Sprintf("%s-> %s rank %d", c.Explain(), c.Addrs[0], c.Ranks[0])
	if len(c.Addrs) > 1 {
		out += fmt.Sprintf(", then %v ranks %v", c.Addrs[1:], c.Ranks[1:])
	}
	if c.Prefill != "" {
		out += fmt.Sprintf(", prefill by %s rank %d", c.Prefill, c.PrefillRank)
	}
	return out
}

func (s *scenario) told() string {
	var b strings.Builder
	for _, l := range s.Load() {
		fmt.Fprintf(&b, "%s rank %d: prefill %d, decode %d, requests %d, waiting %d; others %d, their blocks %d", l.Addr, l.Rank, l.PrefillBlocks, l.DecodeBlocks, l.Requests, l.Waiting, l.Others, l.OtherBlocks)
		if l.Busy != "" {
			b.WriteString("; busy: " + l.Busy)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// args reads arguments that may be left out.
type args struct{ *datadriven.TestData }

func (a args) text(key, otherwise string) string {
	for _, arg := range a.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0]
		}
	}
	return otherwise
}

func (a args) number(key string, otherwise int) int {
	n := otherwise
	if s := a.text(key, ""); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			panic(err)
		}
	}
	return n
}
