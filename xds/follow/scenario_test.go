package follow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// TestScenarios runs a hub and its doors by the texts in testdata.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t, hub: newHub(t, nil), doors: map[string]*door{}}
		s.hub.Publish(nil, nil)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.hub.t = t, t
			out := s.do(d)
			for _, door := range s.doors {
				out = strings.ReplaceAll(out, door.dir, "DIR")
			}
			return strings.ReplaceAll(out, s.hub.addr, "ADDRESS")
		})
	})
}

type scenario struct {
	t     *testing.T
	hub   *hub
	doors map[string]*door
	made  uint64 // revisions
	cuts  []*policy.Cut
}

func (s *scenario) do(d *datadriven.TestData) string {
	switch d.Cmd {
	case "publish": // the next revision, as a hub's API would make it; it is not waited for
		return s.publish(s.cut(d.Input))
	case "rollback": // what a revision had, under a new number
		var to int
		fmt.Sscan(d.CmdArgs[0].Key, &to)
		return s.publish(s.cuts[to-1])
	case "hub":
		switch d.CmdArgs[0].Key {
		case "kill":
			s.hub.stop()
		case "start":
			s.hub.start()
		case "dies": // after so many messages of the next push
			var n int64
			fmt.Sscan(d.CmdArgs[1].Key, &n)
			s.hub.dies.Store(n)
		}
		return ""
	}
	one := s.door(d.CmdArgs[0].Key)
	switch d.Cmd {
	case "start":
		if err := one.start(); err != nil {
			return "refuses to start: " + err.Error() + "\n"
		}
		return ""
	case "stop":
		one.stop()
		return ""
	case "settled": // wait until the door has answered the latest revision, and the hub knows
		await(s.t, "the latest is answered", func() bool {
			h, _ := s.hub.holder(one.name)
			return one.source.Status().Connected && h.Connected && h.InFlight == 0 && (h.Revision == s.made || h.NackRevision == s.made)
		})
		return s.status(one)
	case "away": // wait until the door knows that the hub is
		await(s.t, "the hub is away", func() bool { return !one.source.Status().Connected })
		return s.status(one)
	case "status":
		return s.status(one)
	case "revoke":
		s.must(policy.EditRevoked(one.dir, func(list []policy.Revocation) ([]policy.Revocation, error) {
			return append(list, policy.Revocation{Key: d.CmdArgs[1].Key}), nil
		}))
		await(s.t, "revoked", func() bool { return one.current.Load().Revoked(d.CmdArgs[1].Key) })
		return ""
	case "damage": // what is newest on its disk, or all of it
		names, err := filepath.Glob(filepath.Join(one.dir, "policy-*.pb"))
		s.must(err)
		if !d.HasArg("all") {
			names = names[len(names)-1:]
		}
		for _, name := range names {
			s.must(os.Truncate(name, 60))
		}
		return ""
	}
	s.t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (s *scenario) door(name string) *door {
	if s.doors[name] == nil {
		s.doors[name] = newDoor(s.t, s.hub, name, nil)
	}
	d := s.doors[name]
	d.t = s.t
	return d
}

// cut makes a policy of words: each is a key; "!" before it revokes it. "bad" names a model whose endpoint is not there.
func (s *scenario) cut(text string) *policy.Cut {
	set := &policyv1.Set{
		Endpoints: []*policyv1.Endpoint{{Name: "e"}}, Models: []*policyv1.Model{{Name: "m", Endpoint: "e"}},
		Teams: []*policyv1.Team{{Name: "t", Models: []string{"m"}}},
	}
	var keys []*policyv1.Key
	for _, w := range strings.Fields(text) {
		if w == "bad" {
			set.Models[0].Endpoint = "gone"
			continue
		}
		id, revoked := strings.CutPrefix(w, "!")
		hash := make([]byte, 32)
		copy(hash, id)
		keys = append(keys, &policyv1.Key{Id: id, Team: "t", Sha256: hash, Revoked: revoked})
	}
	set.Keys = policy.KeyShards(keys)
	return policy.NewCut(set)
}

func (s *scenario) publish(content *policy.Cut) string {
	s.made++
	before := s.hub.Cut("")
	if before == nil {
		before = policy.NewCut(&policyv1.Set{})
	}
	changed, removed := before.Diff(content)
	next := before.Next(&policyv1.Revision{Number: s.made}, changed, removed)
	s.cuts = append(s.cuts, next)
	s.hub.Publish(next, nil)
	return fmt.Sprintf("revision %d: %d changed, %d removed\n", s.made, len(changed), len(removed))
}

var dirs = regexp.MustCompile(`/[^ ]*/(policy-)`)

// status is what the door has in force, and what the hub says of it.
func (s *scenario) status(d *door) string {
	st, snap, h := d.agent.Status(), d.current.Load(), d.source.Status()
	from := "the hub"
	if st.FromDisk {
		from = "disk alone"
	}
	var keys []string
	for _, id := range []string{"alice", "bob", "carol", "dave"} {
		switch hash := [32]byte{}; {
		case snap.Key([32]byte(append([]byte(id), hash[len(id):]...))) == nil:
		case snap.Revoked(id):
			keys = append(keys, "!"+id)
		default:
			keys = append(keys, id)
		}
	}
	out := fmt.Sprintf("%s: revision %d from %s, keys %s, hub on the line: %v\n", d.name, st.Revision, from, strings.Join(keys, " "), h.Connected)
	if st.LastNack != "" {
		out += "  refused: " + st.LastNack + "\n"
	}
	if known, ok := s.hub.holder(d.name); ok && h.Connected {
		out += fmt.Sprintf("  the hub says: %s, revision %d", known.State(), known.Revision)
		if known.Nack != "" {
			out += fmt.Sprintf(", refused %d: %s", known.NackRevision, known.Nack)
		}
		out += "\n"
	}
	return dirs.ReplaceAllString(out, "$1")
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
}
