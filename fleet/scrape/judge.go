package scrape

import (
	"strconv"
	"time"

	"github.com/spokegate/spokegate/enginemetrics"
	"github.com/spokegate/spokegate/fleet"
)

const (
	// failAfter looks in a row without an answer, a worker that was ready has failed.
	failAfter = 3
	// slowest is the pace of a worker that does nothing, or has failed, in units: what it said last is not old yet then.
	slowest = 4
	// perUnit is how many looks a unit there are at most, all workers together: a tenth of a core.
	perUnit = 300
)

// judge is what is believed of one worker. It is told each look, in order.
type judge struct {
	starting bool // it has never answered
	fails    int  // looks in a row without an answer
	failed   bool
	last     enginemetrics.Counters
	known    bool // last was told, by the present run
	runs     int  // of its engine, as far as anybody noticed
	heard    time.Time
	idle     int    // looks in a row in which it did nothing
	problem  string // with its metrics; empty: none
}

// verdict is what the fleet is to be told.
type verdict struct {
	state  fleet.State
	status fleet.Status
	epoch  string // of a worker that answered
}

// take judges by one look more.
func (j *judge) take(f found) verdict {
	if !f.answered {
		j.silent()
		j.problem = ""
		v := verdict{state: fleet.Ready, status: fleet.Status{Reason: f.why, At: j.heard}}
		switch {
		case j.starting:
			v.state = fleet.Starting
		case j.failed:
			v.state = fleet.Failed
		}
		return v
	}
	j.heard = f.at
	j.answered(f)
	v := verdict{state: fleet.Ready, status: fleet.Status{At: f.at}, epoch: strconv.Itoa(j.runs)}
	if f.known && f.counters.SaysLoad() {
		v.status.Load = new(loadOf(f.counters))
		for _, rank := range f.counters.Ranks {
			v.status.Ranks = append(v.status.Ranks, loadOf(rank))
		}
	}
	if j.problem != "" {
		v.status.Degraded = []string{"metrics: " + j.problem}
	}
	return v
}

func (j *judge) silent() {
	j.fails++
	j.failed = j.failed || !j.starting && j.fails >= failAfter
	j.idle = 0
}

// answered notes an answer, and whether another run of the engine gave it: its cache is empty then. Of one that had failed and
// does not tell by its counters, that is assumed.
func (j *judge) answered(f found) {
	anew := j.runs == 0 || j.failed && !(f.known && j.known)
	if f.known && j.known {
		anew = anew || f.counters.Backwards(j.last) || f.counters.Started != j.last.Started && f.counters.Started*j.last.Started != 0
	}
	if anew {
		j.runs++
		j.known = false
	}
	works := f.known && (!f.counters.Still() || j.known && !f.counters.SameTokens(j.last))
	j.idle++
	if works {
		j.idle = 0
	}
	if f.known {
		j.last, j.known = f.counters, true
	}
	j.starting, j.failed, j.fails, j.problem = false, false, 0, ""
	if f.err != nil {
		j.problem = short(f.err)
	}
}

// pace is when to look again: each unit while it works, or does not answer and is not given up yet; ever more seldom while it
// does nothing. The more workers there are, the slower. random is from 0 to 1: no two keep in step.
func (j *judge) pace(unit time.Duration, workers int, random float64) time.Duration {
	wait := 1.0
	switch {
	case j.failed || j.starting:
		wait = slowing(j.fails)
	case j.fails == 0:
		wait = slowing(j.idle)
	}
	wait = max(wait, float64(workers)/perUnit)
	return time.Duration(wait * (0.75 + 0.25*random) * float64(unit))
}

// slowing doubles with each look.
func slowing(n int) float64 { return float64(min(1<<min(n, 8), slowest)) }

// spread is how long the first look waits: many workers are not all looked at in one moment.
func spread(unit time.Duration, workers int, random float64) time.Duration {
	return time.Duration(random * float64(workers) / perUnit * float64(unit))
}

func loadOf(c enginemetrics.Counters) fleet.Load {
	l := fleet.Load{Running: enginemetrics.Uint32(c.Running), Waiting: enginemetrics.Uint32(c.Waiting), CacheUsedPermille: c.CachePermille()}
	if c.Preemptions != nil {
		l.Preemptions = uint64(max(*c.Preemptions, 0))
	}
	return l
}
