package api

import (
	"cmp"
	"slices"

	"github.com/spokegate/spokegate/hub"
)

func getStatus(s *Server, c *call) (answer, error) {
	spokes, err := s.Hub.Spokes(c.Context(), c.actor)
	if err != nil {
		return answer{}, err
	}
	var doors []Replica
	if s.Replicas != nil {
		doors = s.Replicas()
	}
	head := s.Hub.Head()
	out := Status{Revision: head.Number, At: unlessZero(head.At), Spokes: []SpokeStatus{}}
	for _, x := range spokes {
		st := SpokeStatus{Name: x.Name, Labels: x.Labels, Endpoints: append([]string{}, x.Endpoints...), GPUs: []GPU{}, Reported: unlessZero(x.At), Doors: []Replica{}}
		for _, g := range x.Report.GPUs {
			st.GPUs = append(st.GPUs, GPU(g))
		}
		for _, d := range doors {
			if d.Spoke == x.Name {
				st.Doors = append(st.Doors, d)
			}
		}
		out.Spokes = append(out.Spokes, st)
	}
	return answer{body: out}, nil
}

// getUsage shows team owners what their own teams have used, and not their keys: whose those are, the sums do not say. Keys may
// be a million, and so are told of one at a time.
func getUsage(s *Server, c *call) (answer, error) {
	level, owner := c.query.Get("level"), c.query.Get("owner")
	if level == "key" && owner == "" {
		return answer{}, badRequest("The parameter level=key wants owner: the key.")
	}
	out := List[Use]{Items: []Use{}}
	if s.Used == nil {
		return answer{body: out}, nil
	}
	list := s.Used(func(l, o string) bool {
		switch {
		case level != "" && l != level, owner != "" && o != owner, owner == "" && l == "key":
			return false
		case c.actor.Role == hub.RoleTeamOwner:
			return l == "team" && slices.Contains(c.actor.Teams, o)
		}
		return true
	})
	slices.SortFunc(list, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Kind, b.Kind), a.Start.Compare(b.Start))
	})
	out.Items = append(out.Items, list...)
	return answer{body: out}, nil
}

func getDeployment(s *Server, c *call) (answer, error) {
	yaml, err := s.Hub.Render(c.Context(), c.actor, c.PathValue("name"))
	return answer{raw: yaml}, err
}

func getOpenAPI(s *Server, _ *call) (answer, error) { return answer{raw: s.openapi}, nil }
