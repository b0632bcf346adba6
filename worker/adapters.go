package worker

import (
	"context"
	"encoding/json"
	"io"
)

// Adapters are the names by which requests ask the engine for an adapter (LoRA) of its model: those in its list of models that
// have a parent there. An engine without such a list is an error.
func Adapters(ctx context.Context, e Engine) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readMost)
	defer cancel()
	resp, err := get(ctx, e.Base(), e.Transport(), "/v1/models")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct{ ID, Parent string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerMost)).Decode(&list); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range list.Data {
		if m.ID != "" && m.Parent != "" {
			names = append(names, m.ID)
		}
	}
	return names, nil
}
