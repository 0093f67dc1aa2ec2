// SPDX-License-Identifier: Apache-2.0

package explain

// EffectsByKind returns the properties with an effect, by kind. Kinds whose deletion has none are left out.
func EffectsByKind() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for kind, e := range effectsByKind() {
		if e.onDelete.effect == "" {
			continue
		}

		out[kind] = map[string]bool{}
		for p := range e.byProperty {
			out[kind][p] = true
		}
	}

	return out
}
