// SPDX-License-Identifier: Apache-2.0

// Package addon renders what every cluster has beside Kubernetes itself (network, kube-proxy, DNS, rights) and applies
// it server-side. It knows nothing of machines or of AWS.
package addon

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Values is what the manifests are rendered with.
type Values struct {
	PodCIDR, ServiceCIDR, DNSIP, DNSDomain string
	// Images by name: kube-proxy, coredns, flannel, flannel-cni-plugin.
	Images map[string]string
	// AdminGroup gets cluster-admin.
	AdminGroup string
}

// Object is a rendered object and where it lives in the API.
type Object struct {
	// Path such as /api/v1/namespaces/kube-system/configmaps/coredns.
	Path string
	// Body is JSON.
	Body []byte
}

// Render makes the objects in the order in which they are applied: by file, then as in the file.
func Render(v Values) ([]Object, error) {
	entries, err := manifests.ReadDir("manifests")
	if err != nil {
		return nil, fmt.Errorf("read add-ons: %w", err)
	}

	var out []Object

	for _, e := range entries {
		objects, err := renderFile(e.Name(), v)
		if err != nil {
			return nil, fmt.Errorf("add-on %s: %w", e.Name(), err)
		}

		out = append(out, objects...)
	}

	return out, nil
}

func renderFile(name string, v Values) ([]Object, error) {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return nil, err
	}

	full, err := v.expandPlaceholders(string(text))
	if err != nil {
		return nil, err
	}

	var out []Object

	for part := range strings.SplitSeq(full, "\n---\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}

		o, err := parseObject(part)
		if err != nil {
			return nil, err
		}

		out = append(out, o)
	}

	return out, nil
}

// expandPlaceholders puts the values in the place of {{Name}} and {{Image:name}}. It is no template language: those call methods by
// name, for which the linker would have to keep every method of every AWS client in the agent.
func (v Values) expandPlaceholders(text string) (string, error) {
	values := map[string]string{
		"PodCIDR": v.PodCIDR, "ServiceCIDR": v.ServiceCIDR, "DNSIP": v.DNSIP, "DNSDomain": v.DNSDomain, "AdminGroup": v.AdminGroup,
	}
	for name, ref := range v.Images {
		values["Image:"+name] = ref
	}

	var b strings.Builder

	for {
		before, rest, found := strings.Cut(text, "{{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}

		name, after, _ := strings.Cut(rest, "}}")
		if values[name] == "" {
			return "", fmt.Errorf("there is no value %s", name)
		}

		b.WriteString(values[name])
		text = after
	}
}

func parseObject(text string) (Object, error) {
	body, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return Object{}, err
	}

	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return Object{}, err
	}

	plural, err := pluralResource(head.Kind)
	if err != nil {
		return Object{}, err
	}

	path := "/apis/" + head.APIVersion
	if head.APIVersion == "v1" {
		path = "/api/v1"
	}

	if head.Metadata.Namespace != "" {
		path += "/namespaces/" + head.Metadata.Namespace
	}

	return Object{Path: path + "/" + plural + "/" + head.Metadata.Name, Body: body}, nil
}

// pluralResource is the resource of each kind that add-ons have; a new kind is added here.
func pluralResource(kind string) (string, error) {
	kinds := []string{
		"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment", "Namespace", "PodDisruptionBudget",
		"Role", "RoleBinding", "Service", "ServiceAccount",
	}
	if !slices.Contains(kinds, kind) {
		return "", fmt.Errorf("kind %s is not known here", kind)
	}

	return strings.ToLower(kind) + "s", nil
}

// Applier applies one object at its path, server-side.
type Applier interface {
	Apply(ctx context.Context, path string, object []byte) error
}

// Apply applies every object. One that fails does not keep the others back; all errors are returned.
func Apply(ctx context.Context, api Applier, objects []Object) error {
	var errs []error
	for _, o := range objects {
		if err := api.Apply(ctx, o.Path, o.Body); err != nil {
			errs = append(errs, fmt.Errorf("apply add-on: %w", err))
		}
	}

	return errors.Join(errs...)
}
