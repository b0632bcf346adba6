package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spokegate/spokegate/hub"
)

func objectOf(o hub.Object) Object {
	return Object{Kind: string(o.Kind), Name: o.Name, Revision: o.Revision, Created: o.Created.UTC(), Updated: o.Updated.UTC(), Body: o.Body}
}

// pageOf is which part of a list is asked for.
func pageOf(c *call) (page hub.Page, err error) {
	page = hub.Page{After: c.query.Get("after"), Team: c.query.Get("team")}
	page.Limit, err = limitOf(c)
	return page, err
}

const defaultPage = 100

func limitOf(c *call) (int, error) {
	if !c.query.Has("limit") {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(c.query.Get("limit"))
	if err != nil || n < 1 || n > hub.MaxPage {
		return 0, badRequest("The parameter limit wants a number from 1 to " + strconv.Itoa(hub.MaxPage) + ".")
	}
	return n, nil
}

func listThings(kind hub.Kind) func(*Server, *call) (answer, error) {
	return func(s *Server, c *call) (answer, error) {
		page, err := pageOf(c)
		if err != nil {
			return answer{}, err
		}
		list, more, err := s.Hub.List(c.Context(), c.actor, kind, page)
		if err != nil {
			return answer{}, err
		}
		out := List[Object]{Items: make([]Object, 0, len(list))}
		for _, o := range list {
			out.Items = append(out.Items, objectOf(o))
		}
		if more && len(list) > 0 {
			out.Next = list[len(list)-1].Name
		}
		return answer{body: out, next: out.Next}, nil
	}
}

func getThing(kind hub.Kind) func(*Server, *call) (answer, error) {
	return func(s *Server, c *call) (answer, error) {
		o, err := s.Hub.Get(c.Context(), c.actor, kind, c.PathValue("name"))
		if err != nil {
			return answer{}, err
		}
		a := answer{body: objectOf(o), etag: o.Revision}
		if c.Header.Get("If-None-Match") == etag(o.Revision) {
			a.status = http.StatusNotModified
		}
		return a, nil
	}
}

// putThing answers what the commit made of the thing, also where another one has changed it since.
func putThing(kind hub.Kind) func(*Server, *call) (answer, error) {
	return func(s *Server, c *call) (answer, error) {
		name := c.PathValue("name")
		commit := c.commit(c.query.Get("message"))
		commit.Changes = []hub.Change{{Kind: kind, Name: name, Body: *c.in.(*json.RawMessage), IfRevision: c.expected}}
		revision, err := s.Hub.Commit(c.Context(), commit)
		if err != nil {
			return answer{}, err
		}
		o, err := s.Hub.GetAt(c.Context(), c.actor, kind, name, revision.Number)
		if err != nil {
			return answer{}, err
		}
		made := objectOf(o)
		a := answer{body: Changed{Object: &made, Revision: revisionOf(revision)}, etag: o.Revision}
		if c.expected != nil && *c.expected == 0 {
			a.status = http.StatusCreated
		}
		return a, nil
	}
}

func deleteThing(kind hub.Kind) func(*Server, *call) (answer, error) {
	return func(s *Server, c *call) (answer, error) {
		if c.expected != nil && *c.expected == 0 {
			return answer{}, badRequest("If-None-Match: * means that it is not there; it cannot be deleted then.")
		}
		commit := c.commit(c.query.Get("message"))
		commit.Changes = []hub.Change{{Kind: kind, Name: c.PathValue("name"), IfRevision: c.expected}}
		revision, err := s.Hub.Commit(c.Context(), commit)
		if err != nil {
			return answer{}, err
		}
		return answer{body: Changed{Revision: revisionOf(revision)}}, nil
	}
}
