// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestAnnotateNodes: only the nodes of the changed groups are told to look.
func TestAnnotateNodes(t *testing.T) {
	client := fake.NewClientset()
	for name, group := range map[string]string{"n1": "workers", "n2": "workers", "n3": "others"} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{groupLabel: group}}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := annotateNodes(t.Context(), client, map[string]string{"workers": "abc"}); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		want := map[string]string{"n1": "abc", "n2": "abc"}[n.Name]
		if got := n.Annotations[report.DesiredAnnotation]; got != want {
			t.Errorf("%s: %q, want %q", n.Name, got, want)
		}
	}
}
