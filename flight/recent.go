package flight

// remembered is how many admissions without a flight are remembered.
const remembered = 8192

// recent remembers the last admissions that have no flight: ended ones, and unknown ones of which facts have come early.
// The oldest is forgotten for the newest.
type recent struct {
	byID  map[string]*memory
	order []string // ring
	next  int
}

// memory is what is remembered of one.
type memory struct {
	ended bool
	facts Facts // early ones
}

func newRecent() *recent {
	return &recent{byID: make(map[string]*memory), order: make([]string, remembered)}
}

// of returns the memory of an admission, or makes one.
func (r *recent) of(id string) *memory {
	if m := r.byID[id]; m != nil {
		return m
	}
	delete(r.byID, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % len(r.order)
	m := new(memory)
	r.byID[id] = m
	return m
}

// ended tells whether the admission had its flight.
func (r *recent) ended(id string) bool {
	m := r.byID[id]
	return m != nil && m.ended
}

// early returns the facts that came before the flight.
func (r *recent) early(id string) Facts {
	if m := r.byID[id]; m != nil {
		return m.facts
	}
	return Facts{}
}

// end notes that the admission had its flight.
func (r *recent) end(id string) {
	m := r.of(id)
	m.ended, m.facts = true, Facts{}
}
