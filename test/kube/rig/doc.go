// Package rig is a Kubernetes cluster for tests, as real as one machine without containers allows.
//
// Real are: etcd, the API server with RBAC and its admission, the CRDs, tokens of service accounts, and the audit log. No controller
// and no scheduler runs. What a controller would do is done by the rig where a test asks for it, and each function says so: a
// namespace's default account and root certificate, the pods of a Deployment.
//
// The Node stands for a kubelet and its container runtime: processes on one machine stand for pods. Each pod has a network
// namespace with an address of its own, each container a root of its own (read-only where its spec says so), the user its spec
// names and no capability. No image is pulled: containers get the binaries that the images would hold.
package rig
