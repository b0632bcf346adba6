package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// resourceKinds are the policy's kinds; a spoke is none of it.
var resourceKinds = map[Kind]string{
	KindEndpoint: policy.KindEndpoint, KindModel: policy.KindModel, KindTeam: policy.KindTeam, KindKey: policy.KindKey,
	KindIssuer: policy.KindIssuer, KindPlatform: policy.KindPlatform,
}

// path names a thing in problems, as a policy file's paths do.
func path(kind Kind, name string) string {
	if kind == KindPlatform {
		return "platform"
	}
	return fmt.Sprintf("%ss[%s]", kind, name)
}

// body is what stands in a thing's JSON: each member by itself.
type body map[string]json.RawMessage

func readBody(raw []byte) (body, error) {
	var b body
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&b); err != nil || b == nil {
		return nil, fmt.Errorf("want an object of JSON")
	}
	return b, nil
}

// raw is the body in its one form: members sorted at every level, numbers as they were written.
func (b body) raw() []byte {
	all := make(map[string]any, len(b))
	for name, raw := range b {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return []byte("null") // not reached: what stands in it was read from JSON
		}
		all[name] = v
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(all); err != nil {
		return []byte("null")
	}
	return bytes.TrimSpace(out.Bytes())
}

func (b body) text(member string) string {
	var s string
	_ = json.Unmarshal(b[member], &s)
	return s
}

func (b body) set(member string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = []byte("null") // not reached: texts, times and structs of them
	}
	b[member] = raw
}

// yes says that a member is true; it need not be there.
func (b body) yes(member string) bool { return string(b[member]) == "true" }

// expires is when a key stops; zero: never.
func (b body) expires() time.Time {
	t, _ := time.Parse(time.RFC3339, b.text("expires"))
	return t
}

// thing is a body that was read: what goes into the policy, and what only the hub knows of it.
type thing struct {
	body     body
	raw      []byte // nil: it is not there
	message  proto.Message
	endpoint *endpointPart
	spoke    *spokePart
}

func (t *thing) key() *policyv1.Key {
	k, _ := t.message.(*policyv1.Key)
	return k
}

// nameMember is the member that has a thing's name.
func nameMember(kind Kind) string {
	if kind == KindKey {
		return "id"
	}
	return "name"
}

// readThing reads a body strictly and gives it its one form. A name that is left out is filled in.
func readThing(kind Kind, name string, raw []byte) (*thing, error) {
	if err := plainName(kind, name); err != nil {
		return nil, err
	}
	if err := policy.PlainJSON(raw); err != nil {
		return nil, invalid(path(kind, name), "%v", err)
	}
	if text := name + " " + string(raw); identity.Mask(text) != text {
		return nil, invalid(path(kind, name), "has a key itself in it, which nobody may see here; others may have seen it: make another")
	}
	b, err := readBody(raw)
	if err != nil {
		return nil, invalid(path(kind, name), "%v", err)
	}
	if kind != KindPlatform {
		if had, has := b[nameMember(kind)]; has && b.text(nameMember(kind)) != name {
			return nil, invalid(path(kind, name)+"."+nameMember(kind), "is %.70s; want %q, or leave it out", had, name)
		}
		b.set(nameMember(kind), name)
	}
	t := &thing{body: b}
	if kind == KindSpoke {
		if t.spoke, err = readSpoke(name, b); err != nil {
			return nil, err
		}
		t.raw = b.raw()
		return t, nil
	}
	if h := b.text("sha256"); kind == KindKey && h != "" {
		b.set("sha256", strings.ToLower(h))
	}
	if kind == KindEndpoint {
		if t.endpoint, err = readEndpointPart(name, b); err != nil {
			return nil, err
		}
	}
	t.raw = b.raw()
	forPolicy := t.raw
	if kind == KindEndpoint {
		forPolicy = b.without(endpointMembers).raw()
	}
	t.message, err = policy.ParseEntry(resourceKinds[kind], forPolicy)
	return t, problemsOf(err)
}

// without is the body without some members.
func (b body) without(members []string) body {
	out := body{}
	for name, v := range b {
		out[name] = v
	}
	for _, name := range members {
		delete(out, name)
	}
	return out
}

func problemsOf(err error) error {
	if p, ok := err.(policy.Problems); ok {
		return &Invalid{p}
	}
	return err
}

func plainName(kind Kind, name string) error {
	switch kind {
	case KindPlatform:
		if name != "" {
			return invalid("platform", "has no name")
		}
	case KindModel:
		if name == "" || !plainText(name, 128) { // more of its form the policy knows
			return invalid("models.name", "want the name that requests give")
		}
	case KindSpoke, KindEndpoint, KindTeam, KindKey, KindIssuer:
		if bad := policy.BadID(name); bad != "" {
			return invalid(path(kind, name)+"."+nameMember(kind), "%s", bad)
		}
	default:
		return invalid("", "there is no kind %.70q of things; there are %v", string(kind), Kinds)
	}
	return nil
}
