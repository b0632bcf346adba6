package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// checkVersions looks whether all run the same release.
func checkVersions(_ context.Context, e *exam) {
	who := map[string][]string{}
	for _, p := range e.of("door", "epp", "worker", "hub") {
		who[p.about.Version] = append(who[p.about.Version], p.where())
		if p.fleet == nil {
			continue
		}
		for _, w := range p.fleet.Workers {
			if w.Version != "" {
				who[w.Version] = append(who[w.Version], "worker "+w.Name)
			}
		}
	}
	if len(who) == 0 {
		return
	}
	var said []string
	for _, v := range slices.Sorted(maps.Keys(who)) {
		said = append(said, v+" at "+strings.Join(unique(who[v])[:min(3, len(unique(who[v])))], ", "))
	}
	e.say("versions-differ", "all", len(who) > 1, "versions: %d%s", len(who), listed(said))
}
