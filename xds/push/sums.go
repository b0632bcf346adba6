package push

import hubv1 "github.com/spokegate/spokegate/api/hub/v1"

// Used gives what limits have counted at all stores together, of those whose names are wanted; in no order.
func (s *Server) Used(wanted func(limit string) bool) (totals []*hubv1.Total) {
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	for at := s.used.recent.Front(); at != nil; at = at.Next() {
		if e := at.Value.(*usedEntry); wanted(e.limit) && !over(e.usedKey, s.cfg.Now()) {
			totals = append(totals, &hubv1.Total{Limit: e.limit, Kind: e.kind, Start: e.start, Used: min(e.sum, mostCount)})
		}
	}
	return totals
}
