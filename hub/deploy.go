package hub

import "encoding/json"

// Deployment is what a spoke runs for an endpoint, for the templates.
type Deployment struct {
	Stack      string   `json:"stack"` // the template: dynamo, llm-d, plain, or one of a folder
	Model      string   `json:"model"` // what the engine loads: a path, or a name at a hub of models
	Image      string   `json:"image"`
	Replicas   int      `json:"replicas"`
	GPU        string   `json:"gpu,omitempty"`  // type
	GPUs       int      `json:"gpus,omitempty"` // of each replica
	EngineArgs []string `json:"engine_args,omitempty"`
}

func readDeployment(raw json.RawMessage) (*Deployment, error) {
	d := &Deployment{Replicas: 1}
	return d, strictly(raw, d)
}
