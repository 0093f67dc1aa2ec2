// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// TestEtcdQuota: a database at its quota, its log and a copy of it have room on the volume. The quota grows with the volume up to 8 GiB,
// which the default volume and larger ones have always had.
func TestEtcdQuota(t *testing.T) {
	const mebibyte = 1 << 20
	for size, want := range map[int]int64{
		0: 8 << 30, 1: 160 * mebibyte, 2: 640 * mebibyte, 5: 2080 * mebibyte, 10: 4480 * mebibyte, 17: 7840 * mebibyte,
		18: 8 << 30, 20: 8 << 30, 1000: 8 << 30,
	} {
		if got := v1alpha1.EtcdQuota(size); got != want {
			t.Errorf("%d GiB: %d MiB, want %d", size, got/mebibyte, want/mebibyte)
		}
	}
	last := int64(0)
	for size := 1; size <= 30; size++ {
		quota := v1alpha1.EtcdQuota(size)
		if quota < last || 2*quota+640*mebibyte > int64(size)<<30*15/16 {
			t.Errorf("%d GiB: %d MiB", size, quota/mebibyte)
		}
		last = quota
	}
}
