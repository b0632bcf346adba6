package extauthz

import (
	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/openai"
)

// spotCheck is how many whole answers there are to one that the meter reads by itself, so that what workers report stands beside
// what the door has counted. Which one it is, the worker hears only with the request.
const spotCheck = 32

// reports says whether the worker is to report what the answer used: of one that comes whole. The same admission is always told
// the same.
func (s *Server) reports(admission string, req *openai.Request) bool {
	return s.Reports && !req.Stream && xxh3.HashString(admission)%spotCheck != 0
}
