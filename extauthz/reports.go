package extauthz

import (
	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/openai"
)

// spotCheck is how many whole answers there are to one that the meter reads by itself, so that what workers report is held against
// what has passed. No worker knows which one it is.
const spotCheck = 32

// reports says whether the worker is to report what the answer used: of one that comes whole.
func (s *Server) reports(req *openai.Request) bool { return s.Reports && !req.Stream }

// watched says whether the meter is to see such an answer all the same. Of one admission that is always the same.
func (s *Server) watched(admission string, req *openai.Request) bool {
	return s.reports(req) && xxh3.HashStringSeed(admission, s.watch)%spotCheck == 0
}
