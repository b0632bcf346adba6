package replay

import "math/rand/v2"

// Generate makes sessions as coding agents have them, for where there is no trace: a first prompt of some 80,000 tokens, then
// turns that add a few thousand, rarely a new beginning.
func Generate(load Load) (*Trace, error) {
	n := load.Sessions
	if n <= 0 {
		n = 100
	}
	r := rand.New(rand.NewPCG(load.Seed, 2))
	sessions := make([]session, n)
	for i := range sessions {
		sessions[i] = generated(r)
	}
	return ofSessions("generated", sessions, load)
}

func generated(r *rand.Rand) session {
	const size = 64
	s := session{BlockSize: size}
	var next int32
	length, at := 0, 0.0
	for turn := range 20 + r.IntN(80) {
		grow := 1 + int(r.ExpFloat64()*40)
		q := sessionTurn{T: at, Base: 1, Keep: length, Out: 50 + int(r.ExpFloat64()*370)}
		if turn == 0 || r.IntN(60) == 0 { // the session begins, or its context was made anew
			q.Base, q.Keep, grow = -1, 0, 300+int(r.ExpFloat64()*900)
		}
		for range grow {
			next++
			q.New = append(q.New, next)
		}
		length = q.Keep + grow
		q.In = length * size
		s.Requests = append(s.Requests, q)
		at += 4 + r.ExpFloat64()*30
	}
	return s
}
