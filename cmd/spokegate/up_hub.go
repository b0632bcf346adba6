package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// upHub is the hub that `up` starts where the user gives no policy: the door follows it, and goes on without it.
type upHub struct {
	dir    string // its own
	listen string
	push   string // where the door follows it
	token  string // file with the token that the door shows
	admin  string // file with the token that commands show
}

func newUpHub(dir, listen string) *upHub {
	own := filepath.Join(dir, "hub")
	return &upHub{dir: own, listen: listen, push: "unix:" + filepath.Join(dir, "run", "hub.sock"),
		token: filepath.Join(dir, "run", "hub-token"), admin: filepath.Join(own, "admin.token")}
}

// last is what the door had from the hub when it ran here before; nil: nothing. Where the hub's database is gone, nothing holds
// what was in it either.
func (h *upHub) last(dir string) *policy.Snapshot {
	if _, err := os.Stat(filepath.Join(h.dir, "hub.db")); err != nil {
		return nil
	}
	cut, _ := policy.Load(filepath.Join(dir, "policy"))
	if cut == nil {
		return nil
	}
	snap, err := policy.CompileKept(cut, time.Now())
	if err != nil {
		return nil
	}
	return snap
}

func (h *upHub) args(first, spoke, level string) []string {
	return []string{"hub", "-dir", h.dir, "-listen", h.listen, "-push-listen", h.push, "-push-token-file", h.token, "-ops", "127.0.0.1:0",
		"-import", first, "-import-spoke", spoke, "-log-level", level}
}

func (h *upHub) doorArgs() []string { return []string{"-hub=" + h.push, "-hub-token-file=" + h.token} }

// env is what commands find the hub by.
func (h *upHub) env() string {
	return fmt.Sprintf("SPOKEGATE_HUB=http://%s\nSPOKEGATE_HUB_TOKEN_FILE=%s\n", h.listen, h.admin)
}

// whereToChange says how the policy is changed while all runs.
func (s *site) whereToChange() string {
	if s.hub == nil {
		return s.policy + " (edit it while this runs)"
	}
	return fmt.Sprintf("the hub's, at http://%s:  %s key list  (also team, model, limit, revision, apply; each tells its flags with -h)", s.hub.listen, shellQuote(s.self))
}
