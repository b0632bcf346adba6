package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// readable takes a request in: its query, its headers and its body must be what the route knows.
func (r *route) readable(c *call, w http.ResponseWriter) (err error) {
	if c.query, err = r.parameters(c.URL.RawQuery); err != nil {
		return err
	}
	if !accepts(c.Header.Values("Accept"), r.answersIn()) {
		return newProblem(http.StatusNotAcceptable, "This is answered in "+r.answersIn()+" alone; the header Accept does not permit it.")
	}
	if key := c.Header.Get("Idempotency-Key"); key != "" && (!r.changes || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })) {
		if !r.changes {
			return badRequest("This takes no Idempotency-Key: it may be sent again as it is.")
		}
		return badRequest("The header Idempotency-Key wants 1 to 255 printable ASCII characters.")
	}
	if r.condition {
		if c.expected, err = condition(c.Header); err != nil {
			return err
		}
	}
	if r.in == nil && r.inKind == "" {
		return nil
	}
	return r.readBody(c, w)
}

func (r *route) answersIn() string {
	if r.outKind != "" {
		return r.outKind
	}
	return "application/json"
}

// parameters reads a query. One that is unknown is not passed over: a filter with a typing error would show too much.
func (r *route) parameters(raw string) (url.Values, error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badRequest("The query cannot be read: " + err.Error() + ".")
	}
	for name, values := range v {
		i := slices.IndexFunc(r.query, func(p parameter) bool { return p.name == name })
		if i < 0 {
			known := make([]string, len(r.query))
			for i, p := range r.query {
				known[i] = p.name
			}
			return nil, badRequest(fmt.Sprintf("There is no parameter %q here; known are: %s.", name, strings.Join(known, ", ")))
		}
		if len(values) > 1 {
			return nil, badRequest(fmt.Sprintf("The parameter %s is given twice.", name))
		}
		if _, err := strconv.ParseUint(values[0], 10, 63); r.query[i].whole && err != nil {
			return nil, badRequest(fmt.Sprintf("The parameter %s wants a whole number, not %q.", name, values[0]))
		}
	}
	return v, nil
}

// accepts says whether a client that sent these headers takes a media type.
func accepts(headers []string, kind string) bool {
	all := strings.Join(headers, ",")
	if strings.TrimSpace(all) == "" {
		return true
	}
	family, _, _ := strings.Cut(kind, "/")
	for part := range strings.SplitSeq(all, ",") {
		asked, params, err := mime.ParseMediaType(part)
		if err != nil || params["q"] == "0" {
			continue
		}
		if asked == kind || asked == family+"/*" || asked == "*/*" {
			return true
		}
	}
	return false
}

// condition is the revision that a thing must have: nil: whichever; 0: it must not exist.
func condition(h http.Header) (*uint64, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	zero := uint64(0)
	switch {
	case match != "" && none != "":
		return nil, badRequest("If-Match and If-None-Match together: want one.")
	case none == "*":
		return &zero, nil
	case none != "":
		return nil, badRequest("If-None-Match: want * here, which makes it if it is not there.")
	case match == "*":
		return nil, nil
	case match == "":
		return nil, newProblem(http.StatusPreconditionRequired,
			`Want If-Match with the ETag that you last saw, If-None-Match: * to make it anew, or If-Match: * to change it whatever it is.`)
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(match, `"`), `"`), 10, 63)
	if err != nil || match != etag(n) || n == 0 {
		return nil, badRequest(`If-Match: want * or one ETag as this API gives it, such as "17".`)
	}
	return &n, nil
}

func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// readBody reads it into c.in.
func (r *route) readBody(c *call, w http.ResponseWriter) error {
	most := r.most
	if most == 0 {
		most = mostBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body may have %d bytes here.", most))
	case err != nil:
		return badRequest("The body broke off.")
	}
	if r.in != nil {
		c.in = reflect.New(r.in).Interface()
	}
	if len(body) == 0 && r.mayLack {
		return nil
	}
	want := r.inKind
	if want == "" {
		want = "application/json"
	}
	kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != want {
		return newProblem(http.StatusUnsupportedMediaType, fmt.Sprintf("The body must be %s, and the header Content-Type say so.", want))
	}
	if coding := c.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return newProblem(http.StatusUnsupportedMediaType, "The body must come as it is, without a Content-Encoding.")
	}
	c.raw = body
	if r.in == nil {
		return nil
	}
	return decode(body, c.in)
}

// answer is a route's yes.
type answer struct {
	status int    // 0: 200
	body   any    // as JSON; nil: raw
	raw    []byte // as it is
	etag   uint64 // 0: none
	next   string // of a list: where its next page is
}

// write sends it, and says what status it had.
func (a answer) write(w http.ResponseWriter, c *call) int {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	h := w.Header()
	if a.etag != 0 {
		h.Set("ETag", etag(a.etag))
	}
	if a.next != "" {
		v := c.query
		v.Set("after", a.next)
		h.Set("Link", "<"+c.URL.EscapedPath()+"?"+v.Encode()+`>; rel="next"`)
	}
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		w.WriteHeader(a.status)
		return a.status
	}
	h.Set("Content-Type", c.route.answersIn())
	w.WriteHeader(a.status)
	if a.body == nil {
		_, _ = w.Write(a.raw)
		return a.status
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(a.body) // to a client that may be gone
	return a.status
}
