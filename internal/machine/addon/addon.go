// SPDX-License-Identifier: Apache-2.0

// Package addon renders the add-ons of every cluster (RBAC rules, admission policies, kube-proxy, the pod network, CoreDNS) from
// embedded manifests, as package applier applies them. It knows neither machines nor AWS.
package addon

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/machine/instancedata"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Values are the parameters of the embedded manifests.
type Values struct {
	// PodCIDR is the address range of all pods.
	PodCIDR string
	// ServiceCIDR is the address range of Services.
	ServiceCIDR string
	// DNSIP is the Service address of CoreDNS.
	DNSIP string
	// DNSDomain of Services, such as cluster.local.
	DNSDomain string
	// Images maps kube-proxy, coredns and the images of the pod network to image references.
	Images map[string]string
	// AdminGroup is the group that is bound to cluster-admin.
	AdminGroup string
	// WireGuard encrypts packets of pods between machines.
	WireGuard bool

	// NetworkOfChannel leaves the network of pods to a channel of add-ons: neither flannel nor the Amazon VPC CNI is rendered.
	NetworkOfChannel bool
	// VPCPods has pods get addresses of the VPC, with the Amazon VPC CNI in the place of flannel. The next four are needed with it
	// only.
	VPCPods bool
	// Cluster is the name of the cluster, with which the CNI tags its network interfaces.
	Cluster string
	// Region is the AWS region.
	Region string
	// VPCCNIRole is the ARN of the IAM role of the CNI.
	VPCCNIRole string
	// AWSEndpoint is where all services of AWS are. Empty: at their usual addresses.
	AWSEndpoint string
}

// VPCPodLinks is a pattern of nft for the links of pods on a machine with [Values.VPCPods].
const VPCPodLinks = vpcLinkPrefix + "*"

// vpcLinkPrefix begins the names of these links.
const vpcLinkPrefix = "eni"

// The settings of flannel's backends. flannel takes the MTU from the machine's interface, less 50 bytes for VXLAN and 80 for
// WireGuard. A machine makes its own key for WireGuard after each boot (/run/flannel/wgkey), and publishes the public one in
// an annotation of its Node, which it alone can change.
const (
	vxlanBackend     = `{"Type": "vxlan", "Port": 8472}`
	wireGuardBackend = `{"Type": "wireguard", "ListenPort": 51820}`
)

// Object is a rendered object and its API path.
type Object struct {
	// Addon is the name of the add-on that has the object.
	Addon string
	// Path such as /api/v1/namespaces/kube-system/configmaps/coredns.
	Path string
	// Body of the object as JSON.
	Body []byte
}

// Render returns the objects in the order to apply them: sorted by file name, then in the order of
// the file.
func Render(v Values) ([]Object, error) {
	entries, err := manifests.ReadDir("manifests")
	if err != nil {
		return nil, fmt.Errorf("list embedded add-ons: %w", err)
	}

	var out []Object

	for _, e := range entries {
		if !v.has(e.Name()) {
			continue
		}

		objects, err := renderFile(e.Name(), v)
		if err != nil {
			return nil, fmt.Errorf("add-on %s: %w", e.Name(), err)
		}

		out = append(out, objects...)
	}

	return out, nil
}

// has reports whether a cluster has the add-on of a file: one of the two pod networks or none of them, and all others.
func (v Values) has(file string) bool {
	switch file {
	case "16-flannel-nodes.yaml", "30-flannel.yaml":
		return !v.VPCPods && !v.NetworkOfChannel
	case "30-amazon-vpc-cni.yaml":
		return v.VPCPods
	default:
		return true
	}
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

		o.Addon = addonOf(name)
		out = append(out, o)
	}

	return out, nil
}

// expandPlaceholders replaces {{Name}} and {{Image:name}} by values. It is not text/template
// because templates call methods by name, which makes the linker keep every method of every AWS
// client in the agent.
func (v Values) expandPlaceholders(text string) (string, error) {
	values := map[string]string{
		"PodCIDR":     v.PodCIDR,
		"ServiceCIDR": v.ServiceCIDR,
		"DNSIP":       v.DNSIP,
		"DNSDomain":   v.DNSDomain,
		"AdminGroup":  v.AdminGroup,

		"FlannelBackend": vxlanBackend,

		"Cluster":       v.Cluster,
		"Region":        v.Region,
		"VPCCNIRole":    v.VPCCNIRole,
		"VPCLinkPrefix": vpcLinkPrefix,
		"AWSEndpoint":   strconv.Quote(v.AWSEndpoint), // it may be empty
		"InstanceData":  "http://" + instancedata.Address,
	}
	if v.WireGuard {
		values["FlannelBackend"] = wireGuardBackend
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
			return "", fmt.Errorf("placeholder %q has no value", name)
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

	kind, found := kindNamed(head.Kind)
	if !found {
		return Object{}, fmt.Errorf("unsupported kind %s", head.Kind)
	}

	path := "/apis/" + head.APIVersion
	if head.APIVersion == "v1" {
		path = "/api/v1"
	}

	if head.Metadata.Namespace != "" {
		path += "/namespaces/" + head.Metadata.Namespace
	}

	return Object{Path: path + "/" + kind.resource + "/" + head.Metadata.Name, Body: body}, nil
}
