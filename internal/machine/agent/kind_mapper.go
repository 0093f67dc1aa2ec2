// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// kindMapper finds the resources of kinds by asking the API server, once for each version of an API group. The mapper of
// client-go does the same, but would make the agent 13 MB larger. It must not be used concurrently.
type kindMapper struct {
	meta.RESTMapper

	// read returns the answer to a GET of a path.
	read func(path string) ([]byte, error)
	// kinds has what was read, and versions says of which versions. It is also the RESTMapper.
	kinds    *meta.DefaultRESTMapper
	versions map[schema.GroupVersion]bool
}

func newKindMapper(read func(path string) ([]byte, error)) *kindMapper {
	m := &kindMapper{read: read}
	m.Reset()

	return m
}

// Reset implements [meta.ResettableRESTMapper]: kinds are asked for again.
func (m *kindMapper) Reset() {
	m.kinds = meta.NewDefaultRESTMapper(nil)
	m.RESTMapper = m.kinds
	m.versions = map[schema.GroupVersion]bool{}
}

// RESTMapping implements [meta.RESTMapper]. Without a version it returns the one that the API server prefers.
func (m *kindMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	versions = slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return v == "" })
	if len(versions) == 0 {
		preferred, err := m.findPreferredVersion(kind)
		if err != nil {
			return nil, err
		}

		versions = []string{preferred}
	}

	for _, version := range versions {
		if err := m.load(schema.GroupVersion{Group: kind.Group, Version: version}); err != nil {
			return nil, err
		}
	}

	return m.kinds.RESTMapping(kind, versions...)
}

// findPreferredVersion returns the version of a kind's group that the API server prefers.
func (m *kindMapper) findPreferredVersion(kind schema.GroupKind) (string, error) {
	if kind.Group == "" {
		return "v1", nil // the only version of the core group
	}

	body, err := m.read("/apis/" + kind.Group)
	if errors.Is(err, kube.ErrNotFound) {
		return "", &meta.NoKindMatchError{GroupKind: kind}
	}

	if err != nil {
		return "", err
	}

	var group metav1.APIGroup
	if err := json.Unmarshal(body, &group); err != nil {
		return "", fmt.Errorf("decode /apis/%s: %w", kind.Group, err)
	}

	return group.PreferredVersion.Version, nil
}

// load reads the resources of a version. One that the API server does not have is no error: its kinds are not found.
func (m *kindMapper) load(version schema.GroupVersion) error {
	if m.versions[version] {
		return nil
	}

	path := "/apis/" + version.String()
	if version.Group == "" {
		path = "/api/" + version.Version
	}

	body, err := m.read(path)
	if errors.Is(err, kube.ErrNotFound) {
		m.versions[version] = true
		return nil
	}

	if err != nil {
		return err
	}

	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}

	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}

		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}

		m.kinds.AddSpecific(version.WithKind(r.Kind), version.WithResource(r.Name), version.WithResource(r.SingularName), scope)
	}

	m.versions[version] = true

	return nil
}
