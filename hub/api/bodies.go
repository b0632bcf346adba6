package api

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/hub/deploy"
	"github.com/spokegate/spokegate/policy"
)

// bodySchemas are those of things, by what policy.Schema says of a policy file, which is made from the types that the hub
// decodes bodies with.
func (o *document) bodySchemas() {
	var whole struct{ Properties map[string]schema }
	_ = json.Unmarshal(policy.Schema(), &whole) // made by us; a test reads what comes of it
	items := func(name string) schema {
		s, _ := whole.Properties[name]["items"].(map[string]any)
		if required, is := s["required"].([]any); is { // but for the name, which the path says
			s["required"] = slices.DeleteFunc(required, func(m any) bool { return m == "name" || m == "id" })
		}
		return s
	}
	endpoint := items("endpoints")
	if members, is := endpoint["properties"].(map[string]any); is {
		for name, t := range map[string]reflect.Type{
			"spoke": reflect.TypeFor[string](), "placement": reflect.TypeFor[hub.Placement](),
			"placed": reflect.TypeFor[hub.Placed](), "deployment": reflect.TypeFor[deploy.Deployment](),
		} {
			members[name] = o.schemaOf(t)
			members[name].(schema)["description"] = endpointMembers[name]
		}
	}
	o.schemas["Body"] = schema{"description": "With the members of a policy file."}
	o.schemas[bodyName(hub.KindEndpoint)] = endpoint
	o.schemas[bodyName(hub.KindModel)] = items("models")
	o.schemas[bodyName(hub.KindTeam)] = items("teams")
	o.schemas[bodyName(hub.KindKey)] = items("keys")
	o.schemas[bodyName(hub.KindIssuer)] = items("issuers")
	o.schemas[bodyName(hub.KindPlatform)] = whole.Properties["platform"]
	o.schemas[bodyName(hub.KindSpoke)] = o.spokeBody()
}

// endpointMembers are what an endpoint has beyond the policy file.
var endpointMembers = map[string]string{
	"spoke":      "Where it runs. Left out: the hub places it.",
	"placement":  "What it wants of the spoke that the hub places it in.",
	"placed":     "How the hub has placed it.",
	"deployment": "What the spoke runs for it: what the templates are filled with.",
}

// spokeBody is that of a spoke, which a policy file does not have.
func (o *document) spokeBody() schema {
	site := o.schemaOf(reflect.TypeFor[deploy.Site]())
	site["description"] = "What the templates of its deployments are filled with."
	return schema{"type": "object", "additionalProperties": false, "properties": map[string]any{
		"name":       schema{"type": "string", "description": "The spoke's name: that of its certificate."},
		"labels":     schema{"type": "object", "additionalProperties": schema{"type": "string"}, "description": "What placement looks at."},
		"deployment": site,
	}}
}
