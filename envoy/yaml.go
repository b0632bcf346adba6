package envoy

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// YAML prints messages as Envoy reads them, one document each.
func YAML(messages ...proto.Message) ([]byte, error) {
	var out bytes.Buffer
	for i, m := range messages {
		js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("envoy: print %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
		}
		doc, err := yaml.JSONToYAML(js)
		if err != nil {
			return nil, fmt.Errorf("envoy: print %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}
