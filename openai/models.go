package openai

import "strconv"

// ModelList returns the body of GET /v1/models; created is in Unix seconds.
func ModelList(models []string, created int64) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, id := range models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, id, created)
	}
	return append(b, "]}"...)
}

// ModelObject returns the body of GET /v1/models/{id}; created is in Unix seconds.
func ModelObject(id string, created int64) []byte { return appendModel(nil, id, created) }

func appendModel(dst []byte, id string, created int64) []byte {
	dst = appendQuoted(append(dst, `{"id":`...), id)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), created, 10)
	return append(dst, `,"owned_by":"spokegate"}`...)
}
