package storage

import "diapause.dev/storage/format"

// neededBy returns the objects that a manifest needs. The sizes of data keys are not known.
func neededBy(m *Manifest) []ObjectInfo {
	var key *format.KeyID
	if m.DataKey != nil {
		id := m.DataKey.ID()
		key = &id
	}
	return needs(m.Meta.Namespace, m.Packs, key)
}

// neededByEnvelope is neededBy for a manifest that was read without a key.
func neededByEnvelope(e *format.Envelope) []ObjectInfo {
	return needs(e.Key.Namespace, e.Packs, e.Lock)
}

func needs(namespace string, packs []Pack, key *format.KeyID) []ObjectInfo {
	var list []ObjectInfo
	for _, p := range packs {
		list = append(list, ObjectInfo{Name: format.PackName(namespace, p.ID), Size: p.Size})
	}
	if key != nil {
		list = append(list, ObjectInfo{Name: format.KeyName(namespace, *key)})
	}
	return list
}

// objectsOf returns the names of the objects that a manifest needs.
func objectsOf(m *Manifest) []string {
	var names []string
	for _, o := range neededBy(m) {
		names = append(names, o.Name)
	}
	return names
}
