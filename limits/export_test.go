package limits

// Counters is how many counters are stored.
func (m *Memory) Counters() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.counters.all) != len(m.counters.byID) {
		panic("the list and the map of counters differ")
	}
	return len(m.counters.all)
}

// Admissions is how many admissions are stored.
func (m *Memory) Admissions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.len+m.released.len != len(m.holdings) {
		panic("the queues and the map of holdings differ")
	}
	return len(m.holdings)
}
