package sim

import (
	"net/http"
	"strconv"
)

// rankOf is the data-parallel rank that a request asks for; 0 where it asks for none.
func (s *Sim) rankOf(r *http.Request) (int, *refusal) {
	said := r.Header.Get("X-Data-Parallel-Rank")
	if said == "" {
		return 0, nil
	}
	rank, err := strconv.Atoi(said)
	if err != nil || rank < 0 || rank >= s.cfg.Ranks {
		return 0, badRequest("", "x-data-parallel-rank: %.20q, of %d ranks", said, s.cfg.Ranks)
	}
	return rank, nil
}

// transfer is what one engine tells the other of a prompt that it has computed, as vLLM does. A simulator believes it: the prompt's
// blocks are there.
type transfer struct {
	RemoteDecode  bool    `json:"do_remote_decode"`  // asked: keep the blocks for another
	RemotePrefill bool    `json:"do_remote_prefill"` // asked: get them from another
	Engine        *string `json:"remote_engine_id"`
	Blocks        []int   `json:"remote_block_ids"`
}

// moved notes that the prompt of a request was computed elsewhere.
func (e *entry) moved(t *transfer) {
	e.transferred.Store(t != nil && t.RemotePrefill && len(t.Blocks) > 0)
}

// kept is what another engine must know to get the blocks of a job's prompt; nil: nobody wants them.
func (t *transfer) kept(j *job) *transfer {
	if t == nil || !t.RemoteDecode {
		return nil
	}
	engine := "simulator"
	out := &transfer{RemotePrefill: true, Engine: &engine, Blocks: []int{}}
	for i := range tokensOf(len(j.prompts[0])) / BlockTokens {
		out.Blocks = append(out.Blocks, int(i))
	}
	return out
}
