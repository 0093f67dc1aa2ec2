// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// addonNamespaceShape returns a namespace of a channel with every field set; see clusterShape.
func addonNamespaceShape() v1alpha1.AddonNamespace {
	anyKey := map[string]string{"*": "x"}

	return v1alpha1.AddonNamespace{
		Name:        "x",
		Labels:      anyKey,
		Annotations: anyKey,
		PodSecurity: "x",
		RoleBindings: []v1alpha1.AddonRoleBinding{{
			ClusterRole:     "x",
			Groups:          []string{"x"},
			Users:           []string{"x"},
			ServiceAccounts: []string{"x"},
		}},
		ResourceQuota: anyKey,
		ContainerLimits: &v1alpha1.AddonContainerLimits{
			DefaultRequests: anyKey,
			DefaultLimits:   anyKey,
			Max:             anyKey,
		},
		RegistrySecrets: []string{"x"},
		NetworkPolicy:   "x",
	}
}

// namespaceChecker reports what is wrong with one namespace of a channel.
type namespaceChecker struct {
	addonChecker

	addon     int
	path      string // source.namespaces[N].
	namespace v1alpha1.AddonNamespace
}

// checkNamespaces checks the namespaces of an entry.
func (c addonChecker) checkNamespaces(i int, namespaces []v1alpha1.AddonNamespace) {
	for n, namespace := range namespaces {
		path := fmt.Sprintf("source.namespaces[%d].", n)
		checker := namespaceChecker{addonChecker: c, addon: i, path: path, namespace: namespace}
		checker.checkNamespace()

		same := func(o v1alpha1.AddonNamespace) bool { return o.Name == namespace.Name }
		if first := slices.IndexFunc(namespaces, same); first < n {
			checker.report("name", namespace.Name, "write one entry with all fields", "is that of source.namespaces[%d]", first)
		}
	}
}

// report reports a field of the namespace.
func (c namespaceChecker) report(field, value, fix, format string, args ...any) {
	c.errorf(c.addon, c.path+field, [2]string{value, fix}, format, args...)
}

func (c namespaceChecker) checkNamespace() {
	name := c.namespace.Name
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		c.report("name", name, "write lower-case letters, digits and dashes, 63 at most", "is not a valid name of a namespace")
	}

	if strings.HasPrefix(name, "kube-") || name == "default" {
		c.report("name", name, "choose another name", "is a namespace of Kubernetes itself")
	}

	c.checkEnum("podSecurity", c.namespace.PodSecurity, "privileged", "baseline", "restricted")
	c.checkEnum("networkPolicy", c.namespace.NetworkPolicy,
		v1alpha1.NetworkPolicySameNamespace, v1alpha1.NetworkPolicyDenyIngress)
	c.checkLabels()
	c.checkRoleBindings()
	c.checkRegistrySecrets()
	c.checkQuantities("resourceQuota", c.namespace.ResourceQuota)
	if l := c.namespace.ContainerLimits; l != nil {
		c.checkQuantities("containerLimits.defaultRequests", l.DefaultRequests)
		c.checkQuantities("containerLimits.defaultLimits", l.DefaultLimits)
		c.checkQuantities("containerLimits.max", l.Max)
	}
}

// checkEnum reports a value that is neither empty nor one of known.
func (c namespaceChecker) checkEnum(field, value string, known ...string) {
	if value != "" && !slices.Contains(known, value) {
		c.report(field, value, "write one of "+strings.Join(known, ", "), "is not known")
	}
}

// checkLabels checks the labels of the namespace. The level of the Pod Security Standards has a field of its own.
func (c namespaceChecker) checkLabels() {
	for _, key := range sortedKeys(c.namespace.Labels) {
		value := c.namespace.Labels[key]
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		switch {
		case len(problems) > 0:
			c.report("labels["+key+"]", value, "see the syntax of labels of Kubernetes", "is not a valid label: %s", problems[0])
		case key == PodSecurityLabel && c.namespace.PodSecurity != "":
			c.report("labels["+key+"]", value, "remove the label", "is given in addition to podSecurity")
		}
	}
}

// PodSecurityLabel is the label of the level of the Pod Security Standards that a namespace enforces.
const PodSecurityLabel = "pod-security.kubernetes.io/enforce"

// checkRoleBindings checks who gets which rights.
func (c namespaceChecker) checkRoleBindings() {
	seen := map[string]bool{}
	for n, b := range c.namespace.RoleBindings {
		field := fmt.Sprintf("roleBindings[%d]", n)
		switch {
		case b.ClusterRole == "":
			c.report(field+".clusterRole", "", "write the name of a ClusterRole, such as edit", "is missing")
		case seen[b.ClusterRole]:
			c.report(field+".clusterRole", b.ClusterRole, "list all subjects of a role in one entry", "has several entries")
		case len(b.Groups)+len(b.Users)+len(b.ServiceAccounts) == 0:
			c.report(field, b.ClusterRole, "list groups, users or serviceAccounts, or remove the entry", "is given to nobody")
		}

		seen[b.ClusterRole] = true
		for m, subject := range slices.Concat(b.Groups, b.Users) {
			if strings.TrimSpace(subject) == "" {
				c.report(field, subject, "write the name of a group or user", "has an empty subject at position %d", m)
			}
		}

		c.checkServiceAccounts(field, b.ServiceAccounts)
	}
}

// checkServiceAccounts checks the service accounts of a role binding.
func (c namespaceChecker) checkServiceAccounts(field string, accounts []string) {
	for m, account := range accounts {
		namespace, name, isOther := strings.Cut(account, "/")
		if !isOther {
			namespace, name = c.namespace.Name, account
		}

		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			at := fmt.Sprintf("%s.serviceAccounts[%d]", field, m)
			c.report(at, account, "write NAME, or NAMESPACE/NAME", "is not a valid name of a service account")
		}
	}
}

// checkRegistrySecrets checks the names of registry secrets.
func (c namespaceChecker) checkRegistrySecrets() {
	names := c.namespace.RegistrySecrets
	for n, name := range names {
		field := fmt.Sprintf("registrySecrets[%d]", n)
		if err := CheckRegistrySecretName(name); err != nil {
			c.report(field, name, "write the name of a secret that 'slipway addons secrets list' shows", "%v", err)
		}

		if first := slices.Index(names, name); first < n {
			c.report(field, name, "remove one of them", "is that of registrySecrets[%d]", first)
		}
	}
}

// CheckRegistrySecretName returns an error for a name that a Secret cannot have.
func CheckRegistrySecretName(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return errors.New("is not a valid name of a Secret: use lower-case letters, digits, dashes and dots")
	}

	return nil
}

// checkQuantities checks amounts of resources.
func (c namespaceChecker) checkQuantities(field string, amounts map[string]string) {
	for _, name := range sortedKeys(amounts) {
		if q, err := resource.ParseQuantity(amounts[name]); err != nil || q.Sign() < 0 {
			c.report(field+"["+name+"]", amounts[name], `write a quantity such as "10", 500m or 2Gi`, "is not a quantity")
		}
	}
}
