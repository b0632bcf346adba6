package worker

import (
	"net/http"
	"strconv"
	"strings"
)

// Roles of a worker, as doors know them.
const (
	rolePrefill = "prefill"
	roleDecode  = "decode"
)

// maxRanks is how many doors take.
const maxRanks = 1024

const (
	// ranksHeader tells, of each worker that the door named, which data-parallel rank is to serve: "ip:port=rank", comma-separated.
	ranksHeader = "X-Spokegate-Ranks"
	// engineRankHeader tells vLLM the same.
	engineRankHeader = "X-Data-Parallel-Rank"
)

// rankIn finds what the door said of one worker. not ok: nothing, or nothing that the engine has.
func rankIn(h http.Header, address string, ranks int) (rank string, ok bool) {
	if ranks < 2 {
		return "", false
	}
	for _, list := range h[ranksHeader] {
		for part := range strings.SplitSeq(list, ",") {
			at, n, _ := strings.Cut(strings.TrimSpace(part), "=")
			if r, err := strconv.ParseUint(n, 10, 16); at == address && err == nil && int(r) < ranks {
				return strconv.FormatUint(r, 10), true
			}
		}
	}
	return "", false
}

// RanksOf is how many data-parallel ranks an engine's own arguments ask for; 0: they do not say. They are those of vLLM.
func RanksOf(arguments []string) int {
	n, err := strconv.Atoi(flagValue(arguments, "--data-parallel-size", "-dp"))
	if err != nil || n < 1 {
		return 0
	}
	return n
}
