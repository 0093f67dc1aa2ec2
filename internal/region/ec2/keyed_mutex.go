// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"sync"
)

// keyedMutex is a set of mutexes, one for each key.
type keyedMutex struct {
	mu      sync.Mutex
	mutexes map[string]*sync.Mutex
}

// mutexFor returns the mutex of a key.
func (k *keyedMutex) mutexFor(key string) *sync.Mutex {
	k.mu.Lock()
	defer k.mu.Unlock()
	initMap(&k.mutexes)
	if k.mutexes[key] == nil {
		k.mutexes[key] = &sync.Mutex{}
	}

	return k.mutexes[key]
}

// removeKey forgets the mutex of a key.
func (k *keyedMutex) removeKey(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mutexes, key)
}
