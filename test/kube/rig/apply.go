package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Read takes the objects of a YAML text apart, strictly: a key twice is an error. name says where the text is from, for errors.
func Read(name string, text []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		js, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if string(js) == "null" {
			continue // comments alone
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(js); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if list, err := o.ToList(); o.IsList() && err == nil {
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			continue
		}
		all = append(all, o)
	}
}

// Apply applies objects as kubectl --server-side --validate=strict does, in their order: an unknown field fails. An object
// without a namespace goes to the one given, if its kind has namespaces. It gives what the API server made of each.
func (c *Cluster) Apply(ctx context.Context, namespace, name string, text []byte) ([]*unstructured.Unstructured, error) {
	objects, err := Read(name, text)
	if err != nil {
		return nil, err
	}
	for i, o := range objects {
		if objects[i], err = c.applyOne(ctx, namespace, o); err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", name, o.GetKind(), o.GetName(), err)
		}
	}
	return objects, nil
}

// MustApply is Apply, and fails the test.
func (c *Cluster) MustApply(t testing.TB, namespace, name string, text []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := c.Apply(t.Context(), namespace, name, text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func (c *Cluster) applyOne(ctx context.Context, namespace string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	to, err := c.Resource(o.GroupVersionKind(), namespace, o.GetNamespace())
	if err != nil {
		return nil, err
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true
	return to.Patch(ctx, o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: "rig", Force: &force, FieldValidation: metav1.FieldValidationStrict,
	})
}

// Resource is where objects of a kind are, in the last namespace that is not empty.
func (c *Cluster) Resource(kind schema.GroupVersionKind, namespaces ...string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	all := c.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return all, nil
	}
	namespace := "default"
	for _, n := range namespaces {
		if n != "" {
			namespace = n
		}
	}
	return all.Namespace(namespace), nil
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// applyCRDs applies those that test/setup/kube.sh has fetched and our own, and returns when all are served.
func (c *Cluster) applyCRDs() error {
	ctx := context.Background()
	var names []string
	for _, folder := range []string{".tools/crds/*", "deploy/crds"} {
		files, _ := filepath.Glob(filepath.Join(c.root, folder, "*.yaml"))
		if len(files) == 0 {
			return fmt.Errorf("there are no CRDs in %s: run test/setup/kube.sh first", folder)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			objects, err := c.Apply(ctx, "", f, text)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if o.GroupVersionKind() == crdKind {
					names = append(names, o.GetName())
				}
			}
		}
	}
	crds, err := c.Resource(crdKind)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := Within(patience, func() error {
			o, err := crds.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !hasCondition(o, "Established") {
				return fmt.Errorf("the CRD %s is not yet served", name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	c.mapper.Reset()
	return nil
}

func hasCondition(o *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == name && m["status"] == "True" {
			return true
		}
	}
	return false
}
