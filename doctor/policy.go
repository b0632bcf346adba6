package doctor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

var otherKinds = []Kind{
	{"clock-skew", "clock", Warning, "more than 2 s: records of doors and workers seem out of order, and quotas end at other moments than they say", "let chrony or ntpd keep all machines' clocks"},
	{"clock-wrong", "clock", Fault, "more than 5 s: workers refuse contexts as expired or not yet good, and issuers' tokens fail at 30 s", "let chrony or ntpd keep all machines' clocks"},

	{"policy-none", "policy", Fault, "nobody is admitted", "give the door a -policy that is good (`spokegate policy check FILE`), or a -hub that answers"},
	{"policy-refused", "policy", Fault, "what was changed last is not in force; the policy before it goes on", "the reason stands beside it: correct the file, or the hub's revision"},
	{"policy-from-disk", "policy", Warning, "the door serves what it had before its start: its source has not been heard since", "is the file of -policy, or the hub, still there?"},
	{"policy-silent", "policy", Warning, "changes, and keys that are revoked, do not arrive", "is the hub up, and -hub right? The hub's log and the door's say why not"},
	{"policies-differ", "policy", Warning, "what one door admits another refuses; for longer than a few seconds that is no roll-out", "the same file at all doors, or a hub: `spokegate spoke status`"},
	{"hub-doors", "policy", Warning, "these doors go on with what they had", "`spokegate spoke status` has the reason of each; one that is gone for good is deleted with its spoke"},
	{"policy-unlimited", "policy", Note, "one caller can take all of a model's workers", "limits of the platform, the model or the teams (docs/limits.md)"},

	{"folder-open", "files", Fault, "others on this machine can put files in place of sockets, keys and records", "chmod 700, owned by the user of the process"},
	{"secret-open", "files", Fault, "others on this machine read it, and can join workers, call the hub or be this door", "chmod 600, owned by the user of the process; and make it anew, for it may be known"},
	{"disk-low", "files", Warning, "a journal may take 1 GiB, and what does not fit is lost", "more room for the folder's disk"},
	{"disk-full", "files", Fault, "usage records are lost from now on", "more room for the folder's disk, at once"},
	{"usage-lost", "files", Fault, "records of usage could not be kept: what was used is not billed", "the disk was full, or failed: the log says which; `spokegate usage reconcile` names what is missing"},
	{"spool-full", "files", Warning, "its journal nears its bound of 1 GiB, and beyond it records are lost", "bring Kafka back (its findings say why nothing is shipped), or export and archive journals"},
	{"limits-alone", "stores", Warning, "Redis did not answer: this door counts its share of the limits by itself", "look at Redis; where it is well, a longer -redis-timeout"},
	{"files-few", "files", Warning, "each running request takes some; beyond them requests fail", "LimitNOFILE=65536 in its unit, or ulimit -n"},

	{"request-failed", "request", Fault, "a real request did not come through", "the status and the code beside it say who refused it; the door's log has its x-request-id"},
	{"request-elsewhere", "request", CannotTell, "a key is not sent to another host on the word of a page that anybody may have written", "run doctor on the door's machine, or with -ops at that host"},
	{"request-no-door", "request", CannotTell, "no door was found that the request with the key could go through", "name the folder of a door with -dir, or its pages with -ops"},
	{"request-unmetered", "request", Fault, "it was answered, and no usage record with its tokens came", "look at the findings of envoy for meter and log; `spokegate usage tail` shows what is written"},

	{"check-cut", "doctor", CannotTell, "something answers so slowly that this check did not end", "give it longer with -patience, or look at what is slow"},
	{"nothing-found", "doctor", CannotTell, "there is nothing to look at", "name a role's folder with -dir, or addresses with -ops and -admin"},
}

// checkPolicies looks at what is in force at doors.
func checkPolicies(_ context.Context, e *exam) {
	held := map[string]map[string][]string{}
	for _, d := range e.of("door") {
		p := d.about.Policy
		if p == nil {
			continue
		}
		where := d.where()
		e.say("policy-none", where, p.Revision == 0, "revision %d from %s", p.Revision, p.From)
		e.say("policy-refused", where, p.Refused != "", "%s", orElse(p.Refused, "nothing was refused"))
		e.say("policy-from-disk", where, p.FromDisk, "revision %d is %s", p.Revision, map[bool]string{true: "the one from disk", false: "as its source has it"}[p.FromDisk])
		e.say("policy-silent", where, p.HubSilent > 60, "its source was silent for %.0f s", p.HubSilent)
		if held[d.about.Spoke] == nil {
			held[d.about.Spoke] = map[string][]string{}
		}
		said := fmt.Sprintf("%.12s", p.Digest)
		held[d.about.Spoke][said] = append(held[d.about.Spoke][said], fmt.Sprintf("%s (revision %d)", d.about.Name, p.Revision))
		if d.here && d.path("dir") != "" {
			e.unlimited(d)
		}
	}
	for _, spoke := range slices.Sorted(maps.Keys(held)) {
		var said []string
		for _, digest := range slices.Sorted(maps.Keys(held[spoke])) {
			said = append(said, digest+" at "+strings.Join(held[spoke][digest], ", "))
		}
		e.say("policies-differ", "spoke "+spoke, len(said) > 1, "%s", strings.Join(said, "; "))
	}
}

// unlimited names the models that somebody may use without any limit, by the policy that the door keeps on disk.
func (e *exam) unlimited(d *process) {
	cut, err := policy.Load(filepath.Join(d.path("dir"), "policy"))
	if cut == nil || err != nil {
		return // what cannot be read is another's: files say so
	}
	set, err := cut.Set()
	if err != nil {
		return
	}
	names := unlimitedModels(set)
	e.say("policy-unlimited", d.where(), len(names) > 0, "models without a limit for somebody: %d%s", len(names), listed(names))
}

// unlimitedModels: neither platform nor model has a limit, and a team that may use it has none either.
func unlimitedModels(set *policyv1.Set) (names []string) {
	if len(set.GetPlatform().GetLimits()) > 0 {
		return nil
	}
	for _, m := range set.GetModels() {
		if len(m.GetLimits()) > 0 {
			continue
		}
		for _, t := range set.GetTeams() {
			if len(t.GetLimits()) == 0 && mayUse(t.GetModels(), m.GetName()) {
				names = append(names, m.GetName())
				break
			}
		}
	}
	return names
}

func mayUse(patterns []string, model string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		begin, all := strings.CutSuffix(p, "*")
		return p == model || all && strings.HasPrefix(model, begin)
	})
}
