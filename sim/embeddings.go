package sim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
)

const (
	defaultDimensions = 64
	maxDimensions     = 8192
	maxInputs         = 2048
)

type embeddingsRequest struct {
	Model      string          `json:"model"`
	Input      json.RawMessage `json:"input"`
	Encoding   string          `json:"encoding_format"`
	Dimensions *int            `json:"dimensions"`
}

type embeddingObject struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or base64 of little-endian float32
}

func (s *Sim) embeddings(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error {
	var q embeddingsRequest
	if err := decode(body, &q); err != nil {
		return err
	}
	if err := s.admit(e, q.Model, false); err != nil {
		return err
	}
	texts, err := inputs("input", q.Input)
	if err != nil {
		return err
	}
	dimensions, err := q.dimensions(len(texts))
	if err != nil {
		return err
	}
	if _, err := s.room(texts...); err != nil {
		return err
	}
	j := &job{entry: e, root: rootOf(q.Model, ""), prompts: texts}
	if err := s.run(r.Context(), j, listener{}); err != nil {
		return err
	}
	data := make([]embeddingObject, len(texts))
	for i, t := range texts {
		data[i] = embeddingObject{"embedding", i, encode(vector(fnv(j.root, t), dimensions), q.Encoding)}
	}
	prompt := j.usage().prompt
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": data, "model": q.Model,
		"usage": map[string]int64{"prompt_tokens": prompt, "total_tokens": prompt}})
	return nil
}

func (q *embeddingsRequest) dimensions(inputs int) (int, error) {
	if inputs > maxInputs {
		return 0, badRequest("input", "input: at most %d texts expected", maxInputs)
	}
	switch d := q.Dimensions; {
	case d == nil:
		return defaultDimensions, nil
	case *d < 1 || *d > maxDimensions:
		return 0, badRequest("dimensions", "dimensions: 1 to %d expected", maxDimensions)
	default:
		return *d, nil
	}
}

// vector is of length one and depends on the seed alone.
func vector(seed uint64, dimensions int) []float32 {
	raw, sum := make([]float64, dimensions), 0.0
	for i := range raw {
		raw[i] = float64(mix(seed+uint64(i)))/math.MaxUint64 - 0.5
		sum += raw[i] * raw[i]
	}
	out := make([]float32, dimensions)
	for i, x := range raw {
		out[i] = float32(x / math.Sqrt(sum))
	}
	return out
}

func encode(v []float32, encoding string) any {
	if encoding != "base64" {
		return v
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
