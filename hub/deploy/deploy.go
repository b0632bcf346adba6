// Package deploy renders what a spoke runs for its endpoints as YAML for Kubernetes, from one template a stack: for a repository
// that GitOps follows, or for Karmada to spread. It is pure: equal settings give equal bytes, and nothing is applied anywhere.
package deploy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Deployment is what runs for an endpoint.
type Deployment struct {
	// Stack is the template: dynamo, llm-d or plain, or one of the operator's own.
	Stack string `json:"stack"`
	// Model is what the engine loads: a path in its image or volume, or a name at a hub of models.
	Model string `json:"model"`
	// Image is the engine's.
	Image string `json:"image"`
	// Replicas is how many engines run; default 1.
	Replicas *int `json:"replicas,omitempty"`
	// GPU is the type, as spokes report it and as nodes are labelled; "": any.
	GPU string `json:"gpu,omitempty"`
	// GPUs is how many each replica has; 0: none.
	GPUs int `json:"gpus,omitempty"`
	// EngineArgs follow what the template says to the engine.
	EngineArgs []string `json:"engine_args,omitempty"`
}

// Count is how many replicas there are.
func (d *Deployment) Count() int {
	if d.Replicas == nil {
		return 1
	}
	return *d.Replicas
}

// Site is what is the same for all deployments of a spoke.
type Site struct {
	Namespace string   `json:"namespace,omitempty"` // default: spokegate
	Image     string   `json:"image,omitempty"`     // of spokegate itself, for shims
	Doors     []string `json:"doors,omitempty"`     // addresses that shims join, host:port, or dns:host:port for all of that name
	Gateway   string   `json:"gateway,omitempty"`   // of HTTPRoutes; default: spokegate
	// ModelsClaim is a PersistentVolumeClaim with models, which is mounted at /models; "": models come in images, or from a hub.
	ModelsClaim string `json:"models_claim,omitempty"`
	// FleetIssuer is an Issuer of cert-manager in the namespace, whose CSI driver gives each worker its certificate; "": no TLS.
	// DoorName is the name in the doors' certificates then, where it is another than the hosts in Doors.
	FleetIssuer string `json:"fleet_issuer,omitempty"`
	DoorName    string `json:"door_name,omitempty"`
}

// Bounds of a deployment.
const (
	MaxReplicas = 1000
	MaxGPUs     = 64
	maxArgs     = 64
)

var (
	imageRE  = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._:/@-]{0,255}$`)
	stackRE  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	nameRE   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) // of Kubernetes
	hostRE   = regexp.MustCompile(`^(dns:)?[A-Za-z0-9.-]{1,253}:[0-9]{1,5}$`)
	domainRE = regexp.MustCompile(`^[A-Za-z0-9.-]{1,253}$`)
	labelRE  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// Check says what is wrong with a deployment.
func (d *Deployment) Check() error {
	switch {
	case !stackRE.MatchString(d.Stack):
		return errors.New("stack: want the name of a template: dynamo, llm-d, plain, or one of your own")
	case d.Model == "" || !plain(d.Model, 512):
		return errors.New("model: want what the engine loads, a path or a name")
	case !imageRE.MatchString(d.Image):
		return errors.New("image: want the engine's image, like registry.example.com/vllm:1.2")
	case d.Count() < 0 || d.Count() > MaxReplicas:
		return fmt.Errorf("replicas: want a number from 0 to %d", MaxReplicas)
	case d.GPU != "" && !labelRE.MatchString(d.GPU):
		return errors.New("gpu: want a type of GPU as nodes are labelled, up to 63 letters, digits and . _ -")
	case d.GPUs < 0 || d.GPUs > MaxGPUs:
		return fmt.Errorf("gpus: want a number from 0 to %d", MaxGPUs)
	case len(d.EngineArgs) > maxArgs || slices.ContainsFunc(d.EngineArgs, func(a string) bool { return a == "" || !plain(a, 1024) }):
		return fmt.Errorf("engine_args: want up to %d arguments without control characters", maxArgs)
	}
	return nil
}

// Check says what is wrong with a spoke's settings.
func (s *Site) Check() error {
	switch {
	case s.Namespace != "" && !nameRE.MatchString(s.Namespace):
		return errors.New("namespace: want a name of Kubernetes: lower-case letters, digits and -")
	case s.Gateway != "" && !nameRE.MatchString(s.Gateway):
		return errors.New("gateway: want a name of Kubernetes: lower-case letters, digits and -")
	case s.Image != "" && !imageRE.MatchString(s.Image):
		return errors.New("image: want spokegate's image, like registry.example.com/spokegate:1.2")
	case s.ModelsClaim != "" && !nameRE.MatchString(s.ModelsClaim):
		return errors.New("models_claim: want a name of Kubernetes: lower-case letters, digits and -")
	case len(s.Doors) > 64 || slices.ContainsFunc(s.Doors, func(d string) bool { return !hostRE.MatchString(d) }):
		return errors.New("doors: want up to 64 addresses, host:port or dns:host:port")
	case s.FleetIssuer != "" && !nameRE.MatchString(s.FleetIssuer):
		return errors.New("fleet_issuer: want a name of Kubernetes: lower-case letters, digits and -")
	case s.DoorName != "" && !domainRE.MatchString(s.DoorName):
		return errors.New("door_name: want a DNS name")
	}
	return nil
}

// plain says that a text is short, and has only characters that print.
func plain(s string, most int) bool {
	return utf8.ValidString(s) && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
