package main

import (
	"flag"
	"net/http"
	"os"
	"time"

	"github.com/spokegate/spokegate/doctor"
)

// said are the flags of a role with their values, for its page /about. They are taken when they are complete.
type said map[string]string

// sayFlags leaves out what may be secret.
func sayFlags(f *flag.FlagSet) said {
	out := said{}
	f.VisitAll(func(f *flag.Flag) { out[f.Name] = doctor.Public(f.Value.String()) })
	return out
}

// aboutPage tells who a process is, and how it was started. spokegate doctor compares what they tell.
func aboutPage(role, name, spoke string, flags said, policy func() *doctor.PolicyStatus) page {
	return page{"GET /about", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		folder, _ := os.Getwd() // one that is gone has no relative paths either
		a := doctor.About{Role: role, Name: name, Spoke: spoke, Version: buildVersion(), At: time.Now(), Folder: folder, Flags: flags}
		if policy != nil {
			a.Policy = policy()
		}
		answerJSON(w, a)
	})}
}

// aboutPage of a door also tells how it stands with its policy.
func (d *door) aboutPage() page {
	return aboutPage("door", d.name, d.spoke, d.said, d.policyStatus)
}

func (d *door) policyStatus() *doctor.PolicyStatus {
	st := d.agent.Status()
	p := &doctor.PolicyStatus{Revision: st.Revision, Digest: st.Digest, From: st.From, FromDisk: st.FromDisk, Refused: st.LastNack}
	if st.LastNack != "" {
		p.RefusedAt = &st.LastNackAt
	}
	if d.hub != nil {
		if h := d.hub.Status(); !h.Connected && !h.Heard.IsZero() {
			p.HubSilent = time.Since(h.Heard).Seconds()
		}
	}
	return p
}
