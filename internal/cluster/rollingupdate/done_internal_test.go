// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// TestDoneNamesNodesThatAreLeft: kubectl still lists the nodes of the machines that were terminated last.
func TestDoneNamesNodesThatAreLeft(t *testing.T) {
	node := func(name, started string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if started != "" {
			n.Annotations = map[string]string{rollout.StartedAnnotation: started}
		}
		return n
	}
	u := &updater{client: fake.NewClientset(node("new", ""), node("old-1", "i-1"), node("old-2", "i-2"))}
	if got := u.describeDone(t.Context()); got != "every machine is up to date; the nodes of terminated machines disappear by themselves: old-1, old-2" {
		t.Errorf("got %q", got)
	}
	u.client = fake.NewClientset(node("new", ""))
	if got := u.describeDone(t.Context()); got != "every machine is up to date" {
		t.Errorf("got %q", got)
	}
}
