package envoy

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// steering are the headers of tests that reach the stub of admission over HTTP beside those that reach the real one.
var steering = []string{"x-test-pick", "x-test-endpoint", "x-test-context", "x-test-retries", "x-test-hang", "x-test-says"}

// plainAuthz is stubAuthz over HTTP. It obeys one header more:
//
//	x-test-says  the status of an answer, also of such as nobody gives; "nothing", "panic"
type plainAuthz struct{ checks *notes[check] }

func (s *plainAuthz) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := map[string]string{}
	for name, values := range r.Header {
		h[strings.ToLower(name)] = strings.Join(values, ",")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.checks.add(h[RequestIDHeader], check{kind: CheckFull, headers: h, path: strings.TrimPrefix(r.RequestURI, CheckPrefix), body: body, source: h[ClientAddressHeader]})
	switch says := h["x-test-says"]; {
	case h["x-test-hang"] == CheckFull:
		<-r.Context().Done()
	case h["authorization"] != "Bearer good":
		deny(w, 401, `{"error":{"code":"invalid_api_key"}}`)
	case says == "nothing":
	case says == "panic":
		panic(http.ErrAbortHandler)
	case says != "":
		status, _ := strconv.Atoi(says)
		deny(w, status, `{"error":{"code":"said"}}`)
	default:
		admit(w.Header(), h)
	}
}

// admit writes what admitted says.
func admit(to http.Header, h map[string]string) {
	resp := admitted(h)
	ok := resp.GetOkResponse()
	for _, o := range append(ok.GetHeaders(), ok.GetResponseHeadersToAdd()...) {
		to.Set(o.Header.Key, o.Header.Value)
	}
	to.Set("x-unheard", "of")
	if pick := resp.GetDynamicMetadata().GetFields()[DestinationKey].GetStringValue(); pick != "" {
		to.Set(DestinationKey, pick)
	}
}

func deny(w http.ResponseWriter, status int, body string) {
	w.Header().Set("content-type", "application/json")
	w.Header().Set("retry-after", "1")
	w.Header().Set("x-unheard", "of")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (r *rig) serveAdmission() {
	lis, err := net.Listen("unix", r.door.AdmissionSocket())
	if err != nil {
		r.t.Fatal(err)
	}
	r.admission = &http.Server{Handler: &plainAuthz{r.services.authz.checks}}
	served := make(chan error, 1)
	go func() { served <- r.admission.Serve(lis) }()
	r.t.Cleanup(func() { r.admission.Close(); <-served })
}
