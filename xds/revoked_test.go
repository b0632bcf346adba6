package xds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// patience is for what must come, on a machine that is busy.
const patience = 3 * time.Minute

// revoke changes the spoke's own list, as the command does, and waits until a running agent has taken it up.
func (s *spoke) revoke(d *datadriven.TestData) {
	var want []policy.Revocation
	s.must(policy.EditRevoked(s.dir, func(list []policy.Revocation) ([]policy.Revocation, error) {
		for _, arg := range d.CmdArgs {
			if d.Cmd == "revoke" {
				list = append(list, policy.Revocation{Key: arg.Key, At: t0})
			} else {
				list = slices.DeleteFunc(list, func(r policy.Revocation) bool { return r.Key == arg.Key })
			}
		}
		want = list
		return list, nil
	}))
	s.until("the list is in force", func() bool {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		return slices.Equal(s.agent.revoked, want) && s.agent.status.RevokedErr == ""
	})
}

// revokedFile does harm to the list, and waits until a running agent has seen it.
func (s *spoke) revokedFile(harm func(path string) error) string {
	s.must(harm(policy.RevokedPath(s.dir)))
	s.until("the harm is seen", func() bool { return s.agent.Status().RevokedErr != "" })
	return ""
}

func (s *spoke) until(what string, fact func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); s.agent != nil && !fact(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (s *spoke) keys(d *datadriven.TestData) string {
	var b strings.Builder
	for _, arg := range d.CmdArgs {
		h, err := identity.ParseHash(fmt.Sprintf("%064x", arg.Key))
		s.must(err)
		said := "unknown"
		if k := s.current.Load().Key(h); k != nil {
			if said = k.Refused(t0); said == "" {
				said = "in order"
			}
			if (said == "revoked") != s.current.Load().Revoked(arg.Key) {
				s.t.Errorf("%s is %s by its hash, and not by its id", arg.Key, said)
			}
		}
		fmt.Fprintf(&b, "%s: %s\n", arg.Key, said)
	}
	return b.String()
}
