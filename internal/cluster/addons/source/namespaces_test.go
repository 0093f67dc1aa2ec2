// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// TestNamespaces: each field of a namespace is an object, and a field that is not set is none.
func TestNamespaces(t *testing.T) {
	a := v1alpha1.Addon{
		Parameters: []v1alpha1.AddonParameter{{Name: "CLUSTER", From: "cluster.name"}},
		Source: v1alpha1.AddonSource{Namespaces: []v1alpha1.AddonNamespace{
			{
				Name:        "shop",
				PodSecurity: "restricted",
				RoleBindings: []v1alpha1.AddonRoleBinding{{
					ClusterRole:     "edit",
					Groups:          []string{"${CLUSTER}-shop"},
					Users:           []string{"auditor"},
					ServiceAccounts: []string{"deployer", "tools/deployer"},
				}},
				ResourceQuota: map[string]string{"pods": "50"},
				ContainerLimits: &v1alpha1.AddonContainerLimits{
					DefaultRequests: map[string]string{"cpu": "50m"},
					Max:             map[string]string{"memory": "4Gi"},
				},
				RegistrySecrets: []string{"registry"},
				NetworkPolicy:   v1alpha1.NetworkPolicySameNamespace,
			},
			{Name: "idle", ContainerLimits: &v1alpha1.AddonContainerLimits{}},
			{Name: "safe", NetworkPolicy: v1alpha1.NetworkPolicyDenyIngress},
		}},
	}
	r := newReader(t.TempDir())
	r.ReadSecret = func(_ context.Context, name string) ([]byte, error) { return []byte("{} of " + name), nil }
	got, err := read(t, r, a)
	if diff := cmp.Diff(wantNamespaces, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

const wantNamespaces = `apiVersion: v1
kind: Namespace
metadata:
  labels:
    slipway.dev/addon: app
  name: idle
---
apiVersion: v1
kind: Namespace
metadata:
  labels:
    slipway.dev/addon: app
  name: safe
---
apiVersion: v1
kind: Namespace
metadata:
  labels:
    pod-security.kubernetes.io/enforce: restricted
    slipway.dev/addon: app
  name: shop
---
apiVersion: v1
kind: ResourceQuota
metadata:
  labels:
    slipway.dev/addon: app
  name: quota
  namespace: shop
spec:
  hard:
    pods: "50"
---
apiVersion: v1
kind: LimitRange
metadata:
  labels:
    slipway.dev/addon: app
  name: containers
  namespace: shop
spec:
  limits:
  - defaultRequest:
      cpu: 50m
    max:
      memory: 4Gi
    type: Container
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  labels:
    slipway.dev/addon: app
  name: default
  namespace: safe
spec:
  podSelector: {}
  policyTypes:
  - Ingress
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  labels:
    slipway.dev/addon: app
  name: default
  namespace: shop
spec:
  ingress:
  - from:
    - podSelector: {}
  podSelector: {}
  policyTypes:
  - Ingress
---
apiVersion: v1
data:
  .dockerconfigjson: e30gb2YgcmVnaXN0cnk=
kind: Secret
metadata:
  labels:
    slipway.dev/addon: app
  name: registry
  namespace: shop
type: kubernetes.io/dockerconfigjson
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    slipway.dev/addon: app
  name: edit
  namespace: shop
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: edit
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: demo-shop
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: auditor
- kind: ServiceAccount
  name: deployer
  namespace: shop
- kind: ServiceAccount
  name: deployer
  namespace: tools
`
