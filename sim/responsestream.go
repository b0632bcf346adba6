package sim

import "net/http"

// responseEvents numbers the events of one Responses stream.
type responseEvents struct {
	out  *sse
	made *response
	next int
}

type fields map[string]any

// send adds the type and the number that every event has.
func (e *responseEvents) send(kind string, f fields) error {
	f["type"], f["sequence_number"] = kind, e.next
	e.next++
	return e.out.event(kind, f)
}

// about adds where in the output the event belongs.
func (e *responseEvents) about(kind string, f fields) error {
	f["item_id"], f["output_index"] = e.made.item.ID, 0
	if e.made.script.call == "" {
		f["content_index"] = 0
	}
	return e.send(kind, f)
}

func (s *Sim) streamResponse(w http.ResponseWriter, r *http.Request, j *job, made *response) error {
	e := &responseEvents{out: newSSE(w), made: made}
	err := s.run(r.Context(), j, listener{
		started: e.open,
		token: func(t token) error {
			if made.script.call != "" {
				return e.about("response.function_call_arguments.delta", fields{"delta": t.text})
			}
			return e.about("response.output_text.delta", fields{"delta": t.text, "logprobs": []any{}})
		},
	})
	if err != nil {
		return err
	}
	text := made.script.text(made.script.tokens)
	made.finish(j, text)
	if err := e.closeItem(text); err != nil {
		return err
	}
	return e.send("response."+made.object.Status, fields{"response": made.object})
}

func (e *responseEvents) open() error {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		if err := e.send(kind, fields{"response": e.made.object}); err != nil {
			return err
		}
	}
	item := fields{"id": e.made.item.ID, "type": e.made.item.Type, "status": "in_progress"}
	if e.made.script.call != "" {
		item["call_id"], item["name"], item["arguments"] = e.made.item.CallID, e.made.item.Name, ""
		return e.send("response.output_item.added", fields{"output_index": 0, "item": item})
	}
	item["role"], item["content"] = e.made.item.Role, []any{}
	if err := e.send("response.output_item.added", fields{"output_index": 0, "item": item}); err != nil {
		return err
	}
	return e.about("response.content_part.added", fields{"part": textPart("")})
}

func (e *responseEvents) closeItem(text string) error {
	if e.made.script.call != "" {
		if err := e.about("response.function_call_arguments.done", fields{"arguments": text, "name": e.made.item.Name}); err != nil {
			return err
		}
	} else {
		if err := e.about("response.output_text.done", fields{"text": text, "logprobs": []any{}}); err != nil {
			return err
		}
		if err := e.about("response.content_part.done", fields{"part": textPart(text)}); err != nil {
			return err
		}
	}
	return e.send("response.output_item.done", fields{"output_index": 0, "item": e.made.item})
}
