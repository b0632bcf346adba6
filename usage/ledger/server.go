package ledger

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Server answers over HTTP what the ledger knows.
type Server struct {
	Ledger *Ledger
	// TokenFile holds the bearer token that wants to be shown for numbers; it is read again for each request, so that a new one
	// is taken up. Empty: whoever reaches this machine's loopback may ask, and nobody by another name for it.
	TokenFile string
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// answerTime bounds a query.
const answerTime = 30 * time.Second

//go:embed page
var page embed.FS

// Handler serves GET /v1/ledger, GET /v1/state, and the page at /. The page itself tells nothing: its script asks.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ledger", s.guarded(s.ledger))
	mux.HandleFunc("GET /v1/state", s.guarded(s.state))
	for path, file := range map[string][2]string{
		"GET /{$}":      {"page/index.html", "text/html; charset=utf-8"},
		"GET /page.js":  {"page/page.js", "text/javascript; charset=utf-8"},
		"GET /plot.js":  {"page/plot.js", "text/javascript; charset=utf-8"},
		"GET /page.css": {"page/page.css", "text/css; charset=utf-8"},
	} {
		mux.HandleFunc(path, asset(file[0], file[1]))
	}
	return mux
}

func asset(file, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		b, err := page.ReadFile(file)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		harden(w.Header())
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(b)
	}
}

// harden lets a browser load nothing but from here, run no text as script, and show the page in no frame.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// guarded lets only those through who may know.
func (s *Server) guarded(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		if err := s.allowed(r); err != nil {
			fail(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		if err := f(w, r.WithContext(ctx)); err != nil {
			fail(w, err)
		}
	}
}

// httpError is one that the caller is told.
type httpError struct {
	status int
	error
}

func bad(err error) error { return httpError{http.StatusBadRequest, err} }

func fail(w http.ResponseWriter, err error) {
	told := httpError{http.StatusInternalServerError, errors.New("the ledger's database does not answer; its log says why")}
	errors.As(err, &told)
	if told.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="spokegate ledger"`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(told.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": told.Error()}})
}

func (s *Server) allowed(r *http.Request) error {
	if s.TokenFile == "" {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(strings.Trim(host, "[]")) { // a page of somebody's whose name was made to mean this machine
			return httpError{http.StatusForbidden, fmt.Errorf("without -token-file this answers as localhost alone, not as %q", host)}
		}
		return nil
	}
	token, err := ReadToken(s.TokenFile)
	if err != nil {
		s.Ledger.cfg.Log.Error("nobody is let in", "err", err)
		return httpError{http.StatusServiceUnavailable, errors.New("the file with the token cannot be read")}
	}
	want := sha256.Sum256([]byte(token))
	said, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(said))
	if !is || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return httpError{http.StatusUnauthorized, errors.New("want the header Authorization: Bearer TOKEN with the ledger's token")}
	}
	return nil
}

// leastToken is how many characters a token has at least.
const leastToken = 20

// ReadToken reads a token from its file: one line, which is not told in errors.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s: want one line with a token of %d characters or more", file, leastToken)
	}
	return token, nil
}

// ledger answers GET /v1/ledger.
func (s *Server) ledger(w http.ResponseWriter, r *http.Request) error {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad(fmt.Errorf("the query cannot be read: %w", err))
	}
	q, err := ParseQuery(v)
	if err != nil {
		return bad(err)
	}
	rows, next, err := s.Ledger.Sums(r.Context(), q)
	if err != nil {
		s.Ledger.cfg.Log.Error("a query failed", "err", err)
		return err
	}
	w.Header().Set("Vary", "Accept")
	if v.Get("format") == "csv" || v.Get("format") == "" && prefersCSV(r.Header.Get("Accept")) {
		return writeCSV(w, q, rows, next)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return writeJSON(w, s.Ledger.cfg.Bill, q, rows, next)
}

// prefersCSV tells whether CSV is the first of the two that is named.
func prefersCSV(accept string) bool {
	csv := strings.Index(accept, "text/csv")
	json := strings.Index(accept, "application/json")
	return csv >= 0 && (json < 0 || csv < json)
}

// overdueDefault is after how long an admission without an end is missed, as reconciliation does by default.
const overdueDefault = 3600

// state answers GET /v1/state.
func (s *Server) state(w http.ResponseWriter, r *http.Request) error {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad(fmt.Errorf("the query cannot be read: %w", err))
	}
	var since time.Time
	overdue := int64(overdueDefault)
	for name, values := range v {
		switch name {
		case "from":
			since, err = hourParameter(name, values)
		case "overdue":
			overdue, err = strconv.ParseInt(values[0], 10, 32)
			if err != nil || overdue < 0 {
				err = fmt.Errorf("overdue %q: want seconds", values[0])
			}
		default:
			err = fmt.Errorf("there is no parameter %q: want from or overdue", name)
		}
		if err != nil {
			return bad(err)
		}
	}
	st, err := s.Ledger.State(r.Context(), since, time.Duration(overdue)*time.Second)
	if err != nil {
		s.Ledger.cfg.Log.Error("a query failed", "err", err)
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(struct {
		State
		Sums []json.RawMessage `json:"sums"`
	}{st, jsonRows(nil, st.Sums)})
}
