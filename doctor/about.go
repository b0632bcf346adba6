package doctor

import (
	"strings"
	"time"
)

// About is what a process of ours says of itself at /about.
type About struct {
	Role    string    `json:"role"` // door, epp, worker, hub
	Name    string    `json:"name"`
	Spoke   string    `json:"spoke,omitempty"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`     // by its clock
	Folder  string    `json:"folder"` // what relative paths begin at
	// Flags are all of its role with their values, without secrets.
	Flags map[string]string `json:"flags"`
	// Policy is what is in force; nil: it has none by its nature.
	Policy *PolicyStatus `json:"policy,omitempty"`
}

// PolicyStatus is how it stands with a door's policy.
type PolicyStatus struct {
	Revision  uint64     `json:"revision"` // 0: none
	Digest    string     `json:"digest,omitempty"`
	From      string     `json:"from,omitempty"`
	FromDisk  bool       `json:"from_disk,omitempty"` // its source has not been heard since the start
	Refused   string     `json:"refused,omitempty"`   // why a later one was
	RefusedAt *time.Time `json:"refused_at,omitempty"`
	// HubSilent is for how long the hub has not been heard, in seconds.
	HubSilent float64 `json:"hub_silent_seconds,omitempty"`
}

// Public is the value of a flag without what may be secret in it: in a URL passwords stand before the host, or behind a
// question mark.
func Public(value string) string {
	scheme, rest, isURL := strings.Cut(value, "://")
	if !isURL {
		return value
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = "…" + rest[i:]
	}
	if head, query, cut := strings.Cut(rest, "?"); cut && query != "cluster=true" {
		rest = head + "?…"
	}
	return scheme + "://" + rest
}
