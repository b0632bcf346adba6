package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// The objects here have those fields that are read or written, and no other: what a newer API server knows beside them is passed
// over. So neither the typed clients nor the API types of Kubernetes are needed, which are most of client-go.

var (
	poolKind  = schema.GroupVersion{Group: "inference.networking.k8s.io", Version: "v1"}
	podKind   = schema.GroupVersion{Version: "v1"}
	leaseKind = schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}
)

// InferencePool is inference.networking.k8s.io/v1.
type InferencePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              PoolSpec        `json:"spec"`
	Status            json.RawMessage `json:"status"` // as it is, for others write it too
}

// PoolSpec says which pods are in the pool, and who picks among them.
type PoolSpec struct {
	Selector          PoolSelector `json:"selector"`
	TargetPorts       []PoolPort   `json:"targetPorts"`
	EndpointPickerRef *PickerRef   `json:"endpointPickerRef"`
}

// PoolSelector names the labels that a pod must have.
type PoolSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// PoolPort is a port of each pod.
type PoolPort struct {
	Number int32 `json:"number"`
}

// PickerRef names the picker, as a rule by its Service.
type PickerRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// InferencePoolList is a list of them.
type InferencePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []InferencePool `json:"items"`
}

// Pod is v1.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              PodSpec   `json:"spec"`
	Status            PodStatus `json:"status"`
}

// PodSpec tells which ports are declared.
type PodSpec struct {
	InitContainers []Container `json:"initContainers"`
	Containers     []Container `json:"containers"`
}

// Container is one of a pod's.
type Container struct {
	Ports []struct {
		ContainerPort int32 `json:"containerPort"`
	} `json:"ports"`
}

// PodStatus tells where the pod is and how it does.
type PodStatus struct {
	Phase      string `json:"phase"`
	PodIP      string `json:"podIP"`
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
	InitContainerStatuses []ContainerStatus `json:"initContainerStatuses"`
	ContainerStatuses     []ContainerStatus `json:"containerStatuses"`
}

// ContainerStatus tells how often a container was started again.
type ContainerStatus struct {
	RestartCount int32 `json:"restartCount"`
}

// PodList is a list of them.
type PodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Pod `json:"items"`
}

// Lease is coordination.k8s.io/v1.
type Lease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              LeaseSpec `json:"spec"`
}

// LeaseSpec says who holds it.
type LeaseSpec struct {
	HolderIdentity       string            `json:"holderIdentity"`
	LeaseDurationSeconds int32             `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime,omitempty"`
	RenewTime            *metav1.MicroTime `json:"renewTime,omitempty"`
	LeaseTransitions     int32             `json:"leaseTransitions"`
}

// Objects are decoded anew each time and never changed, so that what is passed on need not be a copy of all they hold.
func (p *InferencePool) DeepCopyObject() runtime.Object     { return new(*p) }
func (p *InferencePoolList) DeepCopyObject() runtime.Object { return new(*p) }
func (p *Pod) DeepCopyObject() runtime.Object               { return new(*p) }
func (p *PodList) DeepCopyObject() runtime.Object           { return new(*p) }
func (l *Lease) DeepCopyObject() runtime.Object             { return new(*l) }

// codecs read and write these objects as JSON.
func codecs() (runtime.NegotiatedSerializer, runtime.ParameterCodec) {
	s := runtime.NewScheme()
	s.AddKnownTypes(poolKind, &InferencePool{}, &InferencePoolList{})
	s.AddKnownTypes(podKind, &Pod{}, &PodList{})
	s.AddKnownTypes(leaseKind, &Lease{})
	for _, gv := range []schema.GroupVersion{poolKind, podKind, leaseKind} {
		metav1.AddToGroupVersion(s, gv)
	}
	return serializer.NewCodecFactory(s).WithoutConversion(), runtime.NewParameterCodec(s)
}
