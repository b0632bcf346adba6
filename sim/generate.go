package sim

import "context"

// job is one request, ready to run: prompts rendered and answers decided.
type job struct {
	entry   *entry
	root    uint64
	salt    string
	prompts [][]byte
	answers []script // answer i belongs to prompt i*len(prompts)/len(answers)
}

// usage in tokens; prompt includes cached.
type usage struct{ prompt, cached, completion int64 }

func (j *job) usage() usage {
	return usage{j.entry.prompt.Load(), j.entry.cached.Load(), j.entry.generated.Load()}
}

// token is one step of one answer.
type token struct {
	choice int
	at     int64 // from 0
	text   string
	last   bool
}

// listener follows a job. An error ends it.
type listener struct {
	started func() error // prefill is done; may be nil
	token   func(token) error
}

// run takes a job through queue, prefill and decode. It returns early with an error when the client has left. What was
// generated until then is counted and cached.
func (s *Sim) run(ctx context.Context, j *job, l listener) error {
	leave, err := s.clock.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p := newPacer()
	if err := p.after(ctx, s.clock.overhead()); err != nil {
		return err
	}
	for _, prompt := range j.prompts {
		if err := s.prefill(ctx, j, prompt, p); err != nil {
			return err
		}
	}
	if l.started != nil {
		if err := l.started(); err != nil {
			return err
		}
	}
	made := make([]int64, len(j.answers))
	defer s.keep(j, made)
	return s.decode(ctx, j, p, made, l.token)
}

// prefill looks up and computes one prompt. The last token is always computed, as real engines do.
func (s *Sim) prefill(ctx context.Context, j *job, prompt []byte, p *pacer) error {
	if err := take(ctx, s.clock.prefill); err != nil {
		return err
	}
	defer func() { <-s.clock.prefill }()
	p.restart()
	tokens := tokensOf(len(prompt))
	seq := j.sequence(prompt)
	usable := min(int64(len(seq.chain)), max(tokens-1, 0)/BlockTokens)
	cache := s.caches[j.entry.rank]
	if j.entry.transferred.Load() {
		cache.insert(seq)
	}
	cached := int64(cache.match(seq.chain[:usable])) * BlockTokens
	j.entry.prompt.Add(tokens)
	j.entry.cached.Add(cached)
	s.metrics.prompt.Add(float64(tokens))
	s.metrics.cached.Add(float64(cached))
	if err := p.after(ctx, s.clock.prefillTime(tokens-cached)); err != nil {
		return err
	}
	cache.insert(seq)
	return nil
}

// decode gives each unfinished answer one token a step. made counts the tokens of each.
func (s *Sim) decode(ctx context.Context, j *job, p *pacer, made []int64, emit func(token) error) error {
	for {
		var open int64
		for i := range j.answers {
			if made[i] < j.answers[i].tokens {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		if err := p.after(ctx, s.clock.step()); err != nil {
			return err
		}
		j.entry.generated.Add(open)
		s.metrics.generated.Add(float64(open))
		if err := step(j, made, emit); err != nil {
			return err
		}
	}
}

func step(j *job, made []int64, emit func(token) error) error {
	for i := range j.answers {
		a := &j.answers[i]
		if made[i] >= a.tokens {
			continue
		}
		at := made[i]
		made[i]++
		if err := emit(token{choice: i, at: at, text: a.piece(at), last: made[i] == a.tokens}); err != nil {
			return err
		}
	}
	return nil
}

// keep puts what was generated into the cache behind its prompt.
func (s *Sim) keep(j *job, made []int64) {
	for i, n := range made {
		prompt := j.prompts[i*len(j.prompts)/len(j.answers)]
		s.caches[j.entry.rank].insert(j.sequence(append(prompt[:len(prompt):len(prompt)], j.answers[i].text(n)...)))
	}
}
