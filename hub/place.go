package hub

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/deploy"
)

// endpointMembers are those of an endpoint's body that a policy file does not have.
var endpointMembers = []string{"spoke", "placement", "placed", "deployment"}

// Placement is what an endpoint wants of the spoke that it runs in.
type Placement struct {
	GPU    string            `json:"gpu,omitempty"`    // the type, as spokes report it; "": any
	GPUs   int               `json:"gpus,omitempty"`   // of all its replicas together; 0: as its deployment says
	Labels map[string]string `json:"labels,omitempty"` // that the spoke must have
}

// Placed is how the hub has chosen an endpoint's spoke. It is written once: an endpoint never moves by itself.
type Placed struct {
	Spoke  string    `json:"spoke"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// endpointPart is what the hub alone knows of an endpoint.
type endpointPart struct {
	spoke      string
	placement  Placement
	placed     *Placed
	deployment *deploy.Deployment
}

// wants is what the endpoint needs, with what its deployment says.
func (e *endpointPart) wants() Placement {
	w := e.placement
	if d := e.deployment; d != nil {
		if w.GPU == "" {
			w.GPU = d.GPU
		}
		if w.GPUs == 0 {
			w.GPUs = d.Count() * d.GPUs
		}
	}
	return w
}

func readEndpointPart(name string, b body) (*endpointPart, error) {
	e := &endpointPart{}
	at := path(KindEndpoint, name)
	for member, into := range map[string]any{"spoke": &e.spoke, "placement": &e.placement, "placed": &e.placed} {
		if err := strictly(b[member], into); err != nil {
			return nil, invalid(at+"."+member, "%v", err)
		}
	}
	if raw, has := b["deployment"]; has {
		e.deployment = &deploy.Deployment{}
		err := strictly(raw, e.deployment)
		if err == nil {
			err = e.deployment.Check()
		}
		if err != nil {
			return nil, invalid(at+".deployment", "%v", err)
		}
	}
	if e.placement.GPUs < 0 || e.placement.GPUs > maxGPUs {
		return nil, invalid(at+".placement.gpus", "want a number from 0 to %d", maxGPUs)
	}
	return e, badLabels(at+".placement.labels", e.placement.Labels)
}

// maxGPUs bounds what one endpoint may want, and what a spoke may report.
const maxGPUs = 1_000_000

// strictly reads a member: unknown ones in it, and null, are refused. One that is not there leaves the value as it is.
func strictly(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	if string(raw) == "null" {
		return fmt.Errorf("has no value; leave it out")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// spokePart is what is known of a spoke.
type spokePart struct {
	labels map[string]string
	site   deploy.Site
}

// readSpoke reads a spoke's body.
func readSpoke(name string, b body) (*spokePart, error) {
	at := path(KindSpoke, name)
	for member := range b {
		if member != "name" && member != "labels" && member != "deployment" {
			return nil, invalid(fmt.Sprintf("%s.%.70q", at, member), "unknown key; known here are name, labels, deployment")
		}
	}
	s := &spokePart{}
	if err := strictly(b["labels"], &s.labels); err != nil {
		return nil, invalid(at+".labels", "%v", err)
	}
	err := strictly(b["deployment"], &s.site)
	if err == nil {
		err = s.site.Check()
	}
	if err != nil {
		return nil, invalid(at+".deployment", "%v", err)
	}
	return s, badLabels(at+".labels", s.labels)
}

// Bounds of labels, as keys have them.
const (
	maxLabels = 16
	maxLabel  = 128
)

func badLabels(at string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid(at, "want at most %d", maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !plainText(name, 63) || name == "" || !plainText(labels[name], maxLabel) {
			return invalid(at, "want names of up to 63 and values of up to %d printable characters", maxLabel)
		}
	}
	return nil
}

// candidate is a spoke as placement sees it.
type candidate struct {
	name   string
	labels map[string]string
	gpus   map[string]GPU // by type, as reported
	booked map[string]int // by type, what endpoints that are placed there want
}

// free is what a spoke has of a type for one more endpoint: what it has, less what is in use or promised, whichever is more. An
// endpoint that runs already is in both.
func (c *candidate) free(gpu string) int {
	g := c.gpus[gpu]
	return g.Capacity - max(g.Capacity-g.Free, c.booked[gpu])
}

// best is the type of which the spoke has most left for these wants, and how much is left then; why says what is missing.
func (c *candidate) best(w Placement) (gpu string, left int, why string) {
	for _, name := range slices.Sorted(maps.Keys(w.Labels)) {
		if c.labels[name] != w.Labels[name] {
			return "", 0, fmt.Sprintf("its label %s is %q and not %q", name, c.labels[name], w.Labels[name])
		}
	}
	if len(c.gpus) == 0 {
		if w.GPUs > 0 {
			return "", 0, "it has not reported any GPUs"
		}
		return "", 0, ""
	}
	left, found, seen := -1, false, 0
	for _, t := range slices.Sorted(maps.Keys(c.gpus)) {
		if w.GPU != "" && t != w.GPU {
			continue
		}
		found = true
		seen = max(seen, c.free(t))
		if l := c.free(t) - w.GPUs; l > left {
			gpu, left = t, l
		}
	}
	switch {
	case !found && w.GPUs > 0:
		return "", 0, fmt.Sprintf("it has no GPUs of type %s, only %s", w.GPU, strings.Join(slices.Sorted(maps.Keys(c.gpus)), ", "))
	case left < 0 && w.GPUs > 0:
		return "", 0, fmt.Sprintf("it has %d free and %d are wanted", seen, w.GPUs)
	}
	return gpu, max(left, 0), ""
}

// place chooses the spoke that has most left afterwards; of equal ones the first by name. Where none fits it says why, of each.
func place(w Placement, spokes []*candidate) (c *candidate, reason string, fits bool) {
	slices.SortFunc(spokes, func(a, b *candidate) int { return cmp.Compare(a.name, b.name) })
	var why []string
	best, bestGPU, fit := -1, "", 0
	for _, s := range spokes {
		gpu, left, lacks := s.best(w)
		if lacks != "" {
			why = append(why, s.name+": "+lacks)
			continue
		}
		fit++
		if left > best {
			c, best, bestGPU = s, left, gpu
		}
	}
	if c == nil && len(why) == 0 {
		return nil, "there is no spoke yet", false
	}
	if c == nil {
		return nil, "no spoke fits: " + strings.Join(why, "; "), false
	}
	reason = fmt.Sprintf("%d of %d spokes fit", fit, len(spokes))
	if w.GPUs > 0 {
		reason += fmt.Sprintf("; %d × %s wanted, and %d stay free, the most of them", w.GPUs, bestGPU, best)
	}
	if len(why) > 0 {
		reason += "; not " + strings.Join(why, "; ")
	}
	if w.GPUs > 0 {
		c.booked[bestGPU] += w.GPUs
	}
	return c, reason, true
}
