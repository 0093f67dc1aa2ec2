// SPDX-License-Identifier: Apache-2.0

package podfate_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/podfate"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  podfate.Pod
		want podfate.Fate
	}{
		"of a ReplicaSet":                    {podfate.Pod{Controller: "ReplicaSet"}, podfate.Evict},
		"without a controller":               {podfate.Pod{}, podfate.Evict},
		"terminating":                        {podfate.Pod{Controller: "ReplicaSet", Terminating: true}, podfate.Await},
		"static":                             {podfate.Pod{Static: true, Controller: "Node"}, podfate.Keep},
		"static and terminating":             {podfate.Pod{Static: true, Terminating: true}, podfate.Keep},
		"of a DaemonSet":                     {podfate.Pod{Controller: "DaemonSet"}, podfate.Keep},
		"of a DaemonSet that is terminating": {podfate.Pod{Controller: "DaemonSet", Terminating: true}, podfate.Keep},
		"finished":                           {podfate.Pod{Controller: "Job", Finished: true}, podfate.Keep},
	} {
		if got := podfate.Of(tc.pod); got != tc.want {
			t.Errorf("a pod %s: %s, want %s", name, got, tc.want)
		}
	}
}
